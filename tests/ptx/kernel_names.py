"""Names of kernels in PTX: run_op<FORM>, where FORM is an op, or one of an op's forms, whose name begins with the op's
or has it as an argument."""
import re
import subprocess


def forms_of(mangled):
    """The FORM of each mangled name, without namespaces."""
    done = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    found = [re.search(r"run_op<(.*)>\(", name).group(1) for name in done.stdout.splitlines()]
    return [form.replace("nanscope::kernels::cuda::", "").replace("> >", ">>").strip() for form in found]


def ops_of(source):
    """Name of the header of each op in kernels/ops.def, by its class."""
    return dict(re.findall(r"^NANSCOPE_OP\((\w+),\s*(\w+),", (source / "kernels/ops.def").read_text(), re.M))


def op_of(form, ops):
    """The class of the op that a form is of."""
    return max((op for op in ops for word in re.findall(r"\w+", form) if word.startswith(op)), key=len)
