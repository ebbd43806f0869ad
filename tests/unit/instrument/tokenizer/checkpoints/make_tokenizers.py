#!/usr/bin/env python3
"""Makes the tokenizers of this folder, and golden.json: what the PyPI package `tokenizers` does with them.

    pip install tokenizers==0.23.3
    python make_tokenizers.py

llama.json, gemma.json and o200k.json are small vocabularies in the pipelines that the converters of `transformers` 5
write for those families (convert_slow_tokenizer.py, models/*/tokenization_*.py). golden.json has texts and groups: a
group is a file, a JSON patch (RFC 6902) that makes another family's pipeline of it, and for each text its ids, what they
decode to (left out where that is the text), and for whole families the same without special tokens (left out where it is
no different; 0.23 forgets that a token is special when its normalized form is another, as in the odd groups).
"""
import json
import pathlib
import random
import re
import unicodedata

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).parent

CORPUS = """\
The keeper of the lighthouse wrote down the weather every evening, and the tides twice a day. It's said that they've
seen ships where there were none; he didn't believe it, and we'll never know. In 1874 there were 365 entries, in 1875
only 12. The light has to turn, the clock has to be wound, and the oil has to be carried up all of the 212 steps.
When the wind came from the north the windows shook, and when it came from the south there was rain for days.
Der Wärter des Leuchtturms schrieb jeden Abend das Wetter auf und zweimal am Tag die Gezeiten. Über dem Wasser lag der
Nebel, und die Schiffe fuhren langsam. Größere Wellen schlugen gegen die Mauer; es war nicht das erste Mal in diesem
Jahr. Wenn der Wind aus Norden kam, zitterten die Fenster, und für den Weg zum Dorf brauchte man eine Stunde.
灯塔的看守人每天晚上写下天气，每天两次写下潮汐。海上有雾，船走得很慢。风从北方来的时候，窗户在响。
灯塔的光要转，钟要上发条，油要搬上楼。这一年的第一天，海上没有船，天上没有云。
for (int i = 0; i < n; ++i) {
    total += values[i] * weights[i];
    if (total > limit) return false;
}
def tide(hours, height=2.5):
    return height * math.cos(2 * math.pi * hours / 12.42)

    # the clock
    for hour in range(24):
        print(f"{hour:02d}: {tide(hour):.2f} m")
"""

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?"
    r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTIONS + "?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
)
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
)
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    + TAIL
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)


def added(contents, first=None, **flags):
    """Added tokens with those flags, with ids from `first` on (None: filled in later from the vocabulary)."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} | flags
    return [{"id": None if first is None else first + i, "content": c} | flags for i, c in enumerate(contents)]


def numbered(vocabulary, tokens):
    """Gives ids to added tokens: the vocabulary's, and the next free ones in order to those that it has not."""
    free = len(vocabulary)
    for token in tokens:
        token["id"] = vocabulary.get(token["content"], free)
        free += token["id"] == free
    return tokens


def learned_pieces(size):
    """The pieces that BPE learns on CORPUS, spaces as '▁', and its characters, both in their order."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False)
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    return [p for p in pieces if len(p) > 1], [p for p in pieces if len(p) == 1]


def sentencepiece_merges(vocabulary):
    """Every way to put a token together of two others, as `generate_merges` of transformers lists them: tokens in
    order, of one token those with the longest left part first."""
    merges = []
    for token in vocabulary:
        for cut in range(len(token) - 1, 0, -1):
            if token[:cut] in vocabulary and token[cut:] in vocabulary:
                merges.append((token[:cut], token[cut:]))
    return merges


def bpe(vocabulary, merges, **options):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return model | options | {"vocab": vocabulary, "merges": merges}


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def byte_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split_bytes(*regexes):
    return sequence("pretokenizers", *[split(r) for r in regexes], byte_level())


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def spaced_decoder(strip):
    steps = [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    return sequence("decoders", *steps, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strip else []))


def tokenizer_json(tokens, normalizer, pre_tokenizer, decoder, model, post_processor=None):
    root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer}
    root |= {"pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "model": model}
    return root


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def llama():
    pieces, characters = learned_pieces(420)
    # Tokens across spaces, which only pieces that are not split at spaces have, and one that merges do not lead to.
    across = ["e▁", "▁▁", "▁▁▁▁", ",▁", "n▁a"]
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *across, *pieces, "▁twiddle", *characters]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [f"{left} {right}" for left, right in sentencepiece_merges(vocabulary)]  # as files before 2024 have them
    model = bpe(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    normalizer = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    begin = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]}
    begin["single"].append({"Sequence": {"id": "A", "type_id": 0}})
    begin |= {"pair": begin["single"], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    specials = added(tokens[:3], 0)
    return tokenizer_json(specials, normalizer, None, spaced_decoder(strip=True), model, begin)


def gemma():
    pieces, characters = learned_pieces(400)
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    defined = ["<mask>", *["\n" * n for n in range(1, 9)], *["▁" * n for n in range(2, 9)], "<strong>", "</strong>"]
    # As in the first files, "\t" has the place of its byte.
    tokens = [*specials, *defined, *["\t" if b == "<0x09>" else b for b in BYTES]]
    tokens += [p for p in [*pieces, *characters] if p not in tokens]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    model = bpe(vocabulary, sentencepiece_merges(vocabulary), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    all_added = numbered(vocabulary, added(specials) + added(defined, special=False))
    return tokenizer_json(all_added, replace(" ", "▁"), cut, spaced_decoder(strip=False), model)


def o200k():
    tokenizer = Tokenizer(models.BPE())
    steps = [pre_tokenizers.Split(tokenizers.Regex(O200K), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=560, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    specials = numbered(model["vocab"], added(["<|startoftext|>", "<|endoftext|>", "<|start|>", "<|message|>"]))
    model = bpe(model["vocab"], model["merges"])
    return tokenizer_json(specials, None, split_bytes(O200K), byte_level(True, True), model)


def odd_added(vocabulary):
    """Added tokens with all flags, beside words, spaces and one another."""
    return numbered(
        vocabulary,
        added(["<unk>", "<s>", "</s>"])
        + added(["<l>"], lstrip=True)
        + added(["<r>"], rstrip=True)
        + added(["<lr>"], lstrip=True, rstrip=True, special=False)
        + added(["tide"], single_word=True, special=False)
        + added(["the light", "▁<PRE>", "<n>"], normalized=True, special=False)
        + added([" wind", "▁▁", "\n", "<0x41>"], special=False)
        + added(["cafe\u0301"], normalized=True, special=False)
        + added(["\u2581", "Wärter "], normalized=True, special=True, rstrip=True),
    )


def patch(**values):
    """A JSON patch that sets members of the root, or with model_ before the name of its model."""
    ops = []
    for key, value in values.items():
        path = "/" + (key.replace("_", "/", 1) if key.startswith("model_") else key)
        ops.append({"op": "replace", "path": path, "value": value})
    return ops


def groups(files):
    """Name, file, patch, and whether it is a family of its own, for which all texts are tried."""
    llama_words = files["llama.json"]["model"]["vocab"]
    gemma_words = files["gemma.json"]["model"]["vocab"]
    bytes_words = files["o200k.json"]["model"]["vocab"]
    phi3 = numbered(
        llama_words,
        added(["<unk>", "<s>"])
        + added(["</s>"], rstrip=True, special=False)
        + added(["<|endoftext|>"])
        + added(["<|assistant|>", "<|placeholder1|>", "<|system|>", "<|end|>", "<|user|>"], rstrip=True),
    )
    mistral = numbered(llama_words, added(["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"]))
    qwen = added(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    qwen = numbered(bytes_words, qwen + added(["<tool_call>", "<think>", "</think>"], special=False))
    llama_1 = [token | {"normalized": True} for token in files["llama.json"]["added_tokens"]]
    odd = odd_added(llama_words)
    # The package reads added tokens in the byte alphabet too: "café" decodes to what is no UTF-8.
    odd_ascii = numbered(bytes_words, [token for token in odd_added({}) if token["content"].isascii()])
    nfc = {"type": "NFC"}
    digits = sequence("pretokenizers", metaspace("first", True), {"type": "Digits", "individual_digits": True})
    japanese = "[一-龥\u3040-ゟ゠-ヿ]+"
    missing = [{"op": "remove", "path": f"/model/vocab/{byte}"} for byte in ("<0xE4>", "<0xF0>", "<0x00>")]

    def spaced(scheme, split, **more):
        return patch(normalizer=None, pre_tokenizer=metaspace(scheme, split), **more)

    return [
        ("llama-2", "llama.json", [], True),
        ("llama, first files", "llama.json", patch(added_tokens=llama_1), False),
        ("mistral-v0.3", "llama.json", spaced("first", False, added_tokens=mistral), True),
        ("metaspace always, split", "llama.json", spaced("always", True), False),
        ("metaspace first, split, digits", "llama.json", patch(normalizer=nfc, pre_tokenizer=digits), False),
        ("metaspace never", "llama.json", spaced("never", False, decoder=spaced_decoder(strip=False)), False),
        ("phi-3", "llama.json", patch(added_tokens=phi3), True),
        ("odd added tokens", "llama.json", patch(added_tokens=odd), False),
        ("odd added tokens, metaspace first", "llama.json", spaced("first", False, added_tokens=odd), False),
        ("odd added tokens, NFC", "llama.json",
         patch(added_tokens=odd, normalizer=sequence("normalizers", nfc, replace(" ", "▁"))), False),
        ("whole pieces", "llama.json", spaced("always", True, model_ignore_merges=True), False),
        ("unknown, fused", "llama.json", patch(model_byte_fallback=False), False),
        ("unknown, one by one", "llama.json", patch(model_byte_fallback=False, model_fuse_unk=False), False),
        ("some bytes missing", "llama.json", patch(model_fuse_unk=False) + missing, False),
        ("gemma", "gemma.json", [], True),
        ("gemma, no pre_tokenizer", "gemma.json", patch(pre_tokenizer=None), False),
        ("gemma, odd added tokens", "gemma.json", patch(added_tokens=odd_added(gemma_words)), False),
        ("gpt-oss", "o200k.json", [], True),
        ("llama-3, olmo-2", "o200k.json", patch(pre_tokenizer=split_bytes(LLAMA3), model_ignore_merges=True), True),
        ("qwen-3", "o200k.json", patch(pre_tokenizer=split_bytes(QWEN2), normalizer=nfc, added_tokens=qwen), True),
        ("qwen-3.5", "o200k.json", patch(pre_tokenizer=split_bytes(QWEN35), normalizer=nfc), False),
        ("mistral, tekken", "o200k.json", patch(pre_tokenizer=split_bytes(TEKKEN)), False),
        ("deepseek-v3", "o200k.json", patch(pre_tokenizer=split_bytes(r"\p{N}{1,3}", japanese, DEEPSEEK)), False),
        ("cl100k", "o200k.json", patch(pre_tokenizer=split_bytes(CL100K)), False),
        ("scripts and words", "o200k.json", patch(pre_tokenizer=split_bytes(r"\p{Han}+|^\w+|[^\w\s]+$")), False),
        ("odd added tokens over bytes", "o200k.json",
         patch(normalizer=nfc, pre_tokenizer=byte_level(True, True), added_tokens=odd_ascii), False),
    ]


NASTY = r"""
a|The lighthouse| leading|trailing |  two  leading|two trailing  |a b|a  b|a   b|a        b|the tides turn|thethethe|twiddle a twiddle
It's we'll they've I'm you'd DON'T don't o'clock 'tis 'S|x2 42 1,000.50 3rd 1234567890 ½ ² Ⅷ ١٢٣ ๓|HTTPServer camelCase ÄÖÜ
Der Wärter des Leuchtturms|Größe ﬀ ß ẞ|灯塔的看守人|日本語のテキスト、カタカナ|한국어 텍스트|العربية نص|עברית|ภาษาไทยที่|हिन्दी पाठ|Ελληνικά
emoji 😀|😀😀😀|👩‍🚀 👩‍👩‍👧‍👦|🇫🇷🇩🇪|👍🏽|☃️|a😀b 😀 c|✈|café|cafe\u0301|e\u0301\u0323|\u0301|\u0301a|a\u0323\u0301\u0300|A\u030a Å \u212b
\u2581|\u2581\u2581|a\u2581b|\u2581a|a \u2581 b| \u2581|<0x41>|<0x0A> <0xFF>|<0x4|0x41>|<0xE4><0xB8>|\u00a0nbsp\u2003em\u3000ideo\u2028
x\u0000y|\u0001\u0002\u001f\u007f|\u0080\u009f\u0085|\ufeffbom|\u200b\u200c\u200d\u2060|\ufffd|\uffff|\U0010ffff|\ud7ff\ue000|𝒳𝟘𐍈|Ǆǅǆ ʰ
<s>|<s>a| <s> a|a<s>|a <s> b</s>|<s><s>|<unk>|a<unk>b|</s> </s>|<S>|<s|s>|< s>|[INST] hi [/INST]|[INST]hi[/INST]|<|user|>|<|user|>  hi
<|user|>\nhi<|end|>\n<|assistant|>|a <|end|>  \n b|<pad><bos>a<eos>|<start_of_turn>user\nhi<end_of_turn>\n|<strong>b</strong> c|<|start|>a<|message|> b
<|im_start|>user\nhi<|im_end|>\n|<think>\n\n</think> a|<l>|a <l> b|a \n\t<l>|<r>|a <r> b|<r> \n <r>|<r>\n\nb|a <lr> b|  <lr>  |<l><r><lr>|<r> <l>
tide|tides|a tide.|_tide tide_|the light|in the light of| the light|\u2581<PRE> a|<PRE>|<n>|a<n>b|<n> a| wind|the wind|  wind  wind|café au lait|Wärter  x
"""


def unescape(text):
    code = r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})"
    text = re.sub(code, lambda m: chr(int(m[1] or m[2], 16)), text)
    return text.replace(r"\n", "\n").replace(r"\t", "\t")


def nasty_texts():
    texts = [""]
    for line in NASTY.strip("\n").split("\n"):
        # '|' parts texts, but not inside of <|name|>.
        parts = line.replace("<|", "<\0").replace("|>", "\0>").split("|")
        texts += [unescape(part.replace("\0", "|")) for part in parts]
    texts += [" ", "  ", "   ", " " * 9, " " * 40, "\t", "\t\ta", "\n", "\n\n", "a\n", "a\nb\n\nc\n\n\n", "\n" * 12]
    texts += ["\r", "a\r\nb\r\n", "a \n b", "a\t b", " \n ", "if x:\n    return 1\n\n", r"C:\new\table \\", "0" * 25]
    texts += ["a" * 50, "the " * 12, "!" * 30, "中" * 15, "😀" * 6, "ab" * 20, "-" * 17 + "\n" + "=" * 17, "'" * 5]
    texts += ["/" * 9 + "\n/", "<s>" * 7, CORPUS[:150], CORPUS[-190:]]
    return texts


def random_texts(count):
    """Strings of words, spaces, added tokens, marks and any characters that Unicode 14 has."""
    random.seed(20240607)
    parts = CORPUS.split() + [" ", " ", " ", "  ", "\n", "\r\n", "\t", "'ll", "'S", "\u2581", "<s>", "</s>", "<l>", "<r>", "<lr>"]
    parts += ["<|user|>", "<|end|>", "[INST]", "<strong>", "<start_of_turn>", "<n>", "tide", "the light", " wind", "<0x41>"]
    parts += list("aeionstrABCZ0123456789.,;:!?-_/()[]{}<>|\"'\\#$%&*+=@^`~äöüßéñçœøμπжяабвשלעמไทหที่हि한글のカ漢字中国海灯塔")
    parts += ["e\u0301", "\u0301", "\u200d", "👩", "🚀", "😀", "🇫", "\u00a0", "\u3000", "\u0085", "\x00", "\x1b", "½", "Ⅷ", "²", "ſ", "ǅ"]
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and c != 0x180E]
    return [
        "".join(random.choice(known if random.random() < 0.1 else parts) for _ in range(random.randint(1, 9)))
        for _ in range(count)
    ]


def patched(root, ops):
    """The root after the operations of a JSON patch."""
    root = json.loads(json.dumps(root))
    for op in ops:
        *way, last = op["path"].strip("/").split("/")
        node = root
        for key in way:
            node = node[key]
        if op["op"] == "remove":
            del node[last]
        else:
            node[last] = op["value"]
    return root


def encoding(tokenizer, text, is_family):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    plain = tokenizer.decode(ids, skip_special_tokens=True) if is_family else decoded
    return [ids] + ([decoded] if decoded != text or plain != decoded else []) + ([plain] if plain != decoded else [])


def decodings(tokenizer, count):
    """Ids in any order, and what they decode to; none with bytes that are no UTF-8, which the package loses."""
    size = tokenizer.get_vocab_size()
    found = []
    while len(found) < count:
        ids = [random.randrange(size + 3) for _ in range(random.randint(1, 6))]
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        if "\ufffd" not in decoded:
            found.append([ids, decoded])
    return found


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main():
    files = {"llama.json": llama(), "gemma.json": gemma(), "o200k.json": o200k()}
    for name, root in files.items():
        (FOLDER / name).write_text(compact(root) + "\n", encoding="utf-8")
    nasty = nasty_texts()
    texts = nasty + random_texts(320)
    lines = []
    for name, file, ops, is_family in groups(files):
        tokenizer = Tokenizer.from_str(json.dumps(patched(files[file], ops)))
        group = {"name": name, "file": file, "patch": ops}
        group["decodings"] = decodings(tokenizer, 40 if is_family else 5)
        group["encodings"] = [
            encoding(tokenizer, text, is_family) for text in (texts if is_family else texts[: len(nasty) + 30])
        ]
        lines.append(compact(group))
    head = f'{{"made_with":"tokenizers {tokenizers.__version__}",\n"texts":{compact(texts)},\n"groups":[\n'
    (FOLDER / "golden.json").write_text(head + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    print(len(texts), "texts,", len(lines), "groups,", sum(len(json.loads(l)["encodings"]) for l in lines), "encodings")


if __name__ == "__main__":
    main()
