#include <X11/Xatom.h>
#include <X11/Xlib.h>
#include <X11/Xutil.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

/// What xdotool has no command for: x11_hand drop WINDOW FILE lets go of a file over a window (XDND, version 5),
/// x11_hand close WINDOW asks it to close as a window manager does, x11_hand sum WINDOW X Y WIDTH HEIGHT prints a
/// check sum of its pixels.
namespace {

struct DisplayCloser {
  void operator()(Display* display) const { XCloseDisplay(display); }
};

class Hand {
 public:
  explicit Hand(Display* display, Window target) : display_(display), target_(target) {
    source_ = XCreateSimpleWindow(display_, DefaultRootWindow(display_), 0, 0, 1, 1, 0, 0, 0);
  }

  bool drop(const std::string& path) {
    take_focus();
    const Atom selection = atom("XdndSelection");
    XSetSelectionOwner(display_, selection, source_, CurrentTime);
    XWindowAttributes at;
    if (XGetWindowAttributes(display_, target_, &at) == 0) return false;
    tell("XdndEnter", 5L << 24, static_cast<long>(atom("text/uri-list")), 0, 0);
    const long middle = ((at.x + at.width / 2L) << 16) | (at.y + at.height / 2L);
    tell("XdndPosition", 0, middle, CurrentTime, static_cast<long>(atom("XdndActionCopy")));
    if (!answer("XdndStatus", "")) return false;
    tell("XdndDrop", 0, CurrentTime, 0, 0);
    return answer("XdndFinished", "file://" + path + "\r\n");
  }

  bool close() {
    send("WM_PROTOCOLS", static_cast<long>(atom("WM_DELETE_WINDOW")), CurrentTime, 0, 0, 0);
    return true;
  }

  bool sum(int x, int y, unsigned width, unsigned height) {
    XImage* image = XGetImage(display_, target_, x, y, width, height, AllPlanes, ZPixmap);
    if (image == nullptr) return false;
    std::uint64_t hash = 14695981039346656037U;
    const std::size_t bytes = static_cast<std::size_t>(image->bytes_per_line) * height;
    for (std::size_t i = 0; i < bytes; ++i) {
      hash = (hash ^ static_cast<unsigned char>(image->data[i])) * 1099511628211U;
    }
    XDestroyImage(image);
    std::printf("%016llx\n", static_cast<unsigned long long>(hash));
    return true;
  }

 private:
  Atom atom(const char* name) { return XInternAtom(display_, name, False); }

  /// Who drags has the keyboard: the target hears of no key.
  void take_focus() {
    XSetWindowAttributes wanted{};
    wanted.override_redirect = True;
    XChangeWindowAttributes(display_, source_, CWOverrideRedirect, &wanted);
    XMapRaised(display_, source_);
    XSync(display_, False);
    XSetInputFocus(display_, source_, RevertToPointerRoot, CurrentTime);
    XSync(display_, False);
  }

  void tell(const char* what, long one, long two, long three, long four) {
    send(what, static_cast<long>(source_), one, two, three, four);
  }
  void send(const char* what, long a, long b, long c, long d, long e) {
    XEvent event{};
    event.xclient.type = ClientMessage;
    event.xclient.window = target_;
    event.xclient.message_type = atom(what);
    event.xclient.format = 32;
    const long values[] = {a, b, c, d, e};
    std::memcpy(event.xclient.data.l, values, sizeof(values));
    XSendEvent(display_, target_, False, NoEventMask, &event);
    XFlush(display_);
  }

  /// Waits for a message of the target, and hands `offered` over when it is asked for.
  bool answer(const char* message, const std::string& offered) {
    const Atom wanted = atom(message);
    for (int i = 0; i < 500; ++i) {
      while (XPending(display_) > 0) {
        XEvent event;
        XNextEvent(display_, &event);
        if (event.type == ClientMessage && event.xclient.message_type == wanted) return true;
        if (event.type == SelectionRequest) hand_over(event.xselectionrequest, offered);
      }
      usleep(10000);
    }
    return false;
  }

  void hand_over(const XSelectionRequestEvent& request, const std::string& offered) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(offered.data());
    XChangeProperty(display_, request.requestor, request.property, request.target, 8, PropModeReplace, bytes,
                    static_cast<int>(offered.size()));
    XEvent reply{};
    reply.xselection.type = SelectionNotify;
    reply.xselection.requestor = request.requestor;
    reply.xselection.selection = request.selection;
    reply.xselection.target = request.target;
    reply.xselection.property = request.property;
    reply.xselection.time = request.time;
    XSendEvent(display_, request.requestor, False, NoEventMask, &reply);
    XFlush(display_);
  }

  Display* display_;
  Window target_;
  Window source_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::unique_ptr<Display, DisplayCloser> display(XOpenDisplay(nullptr));
  if (!display || argc < 3) return 2;
  Hand hand(display.get(), std::strtoul(argv[2], nullptr, 0));
  const std::string what = argv[1];
  bool done = false;
  if (what == "drop" && argc == 4) done = hand.drop(argv[3]);
  if (what == "close") done = hand.close();
  if (what == "sum" && argc == 7) {
    done = hand.sum(std::atoi(argv[3]), std::atoi(argv[4]), static_cast<unsigned>(std::atoi(argv[5])),
                    static_cast<unsigned>(std::atoi(argv[6])));
  }
  return done ? 0 : 1;
}
