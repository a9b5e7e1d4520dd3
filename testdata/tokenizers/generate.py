"""Writes reference.json.gz: small tokenizers that use every component calib/tokenizer understands, with the ids and
texts that the reference libraries give for strings made to tell them apart.

Needs tokenizers==0.23.3, sentencepiece==0.2.3 and protobuf. Everything in the file is made here: vocabularies are
trained on TEXT, which is this script, and on the strings.

    python generate.py > reference.json.gz
"""

import base64
import gzip
import io
import json
import random
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

random.seed(20)
TEXT = open(__file__, encoding="utf-8").read()

SENTENCES = [
    "", " ", "  ", "   \n\n  x", "a", "The weights of layer 12 are stored in 4 bits.", "don't we'll I'M they'RE he'S it'ſ",
    "for (i = 0; i < 10; i++) {\n\t\tsum += x[i] * w[i];\n\t}\r\n", "1234567 12 ½ ² Ⅷ ٣٤٥", "naïve café ﬁne ①②③ Å Å Å",
    "e\u0301 o\u0308\u0304 \u0301\u0301 a\u0315\u0316 \u1e9b\u0323", "日本語の文章、そして中文。한국어 문장", "привет мир! ΣΊΣΥΦΟΣ",
    "😀👍🏽👨‍👩‍👧 flag 🇩🇪", "tab\there\u00a0nbsp\u3000wide\u2028line\u0085nel", "<s>text</s> <|end|>tail <mask> <mask>x x<mask>",
    "▁already ▁▁ marked▁", "camelCaseWords HTTPServer iPhone XMLHttp", "....!!!???,,,---///", "trailing blanks   ", "\n\n\n", "\x00\x01\x7f",
    "ab" * 40, "^" * 100, " " * 70, "a\u0301" * 40, "word <unk> <0x41> <s", "İstanbul ǅ ẞ ß K", "مرحبا بالعالم שלום עולם हिन्दी ไทย",
]
ATOMS = ["a", "b", "A", "B", "s", "re", "'", "'s", "'LL", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "1", "23", "²", "!", "/", "-", "$", "é",
         "e\u0301", "\u0301", "ǅ", "ʰ", "中", "か", "가", "😀", "<s>", "</s>", "<mask>", "<|end|>", "TOK", "tok", "▁", "ß", "ﬁ", "①", "\u200d", "x_y"]
STRINGS = SENTENCES + ["".join(random.choice(ATOMS) for _ in range(random.randint(1, 16))) for _ in range(120)]


def train(pre, size=380, alphabet=(), **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    tr = trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), show_progress=False)
    t.train_from_iterator([TEXT] + STRINGS, tr)
    m = json.loads(t.to_str())["model"]
    return m["vocab"], m["merges"]


BYTE_VOCAB, BYTE_MERGES = train(pre_tokenizers.ByteLevel(add_prefix_space=False), alphabet=pre_tokenizers.ByteLevel.alphabet())
META_VOCAB, META_MERGES = train(pre_tokenizers.Metaspace(prepend_scheme="always"), size=330)


def added(i, content, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": i, "content": content, **base, **flags}


def place(vocab, tokens):
    """Added tokens with the ids the library gives them: those of the vocabulary, else the next ones behind it."""
    ids = {}
    for content, _ in tokens:
        ids[content] = vocab.get(content, len(vocab) + sum(c not in vocab for c in ids))
    return ids


def byte_level(pre, normalizer=None, tokens=(), post=None, decoder="ByteLevel", **model):
    ids = place(BYTE_VOCAB, tokens)
    dec = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(ids[c], c, **f) for c, f in tokens],
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post, "decoder": dec if decoder else None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": BYTE_VOCAB, "merges": BYTE_MERGES, **model}}


def characters(normalizer, pre, fallback=True, drop="", unk="<unk>", fuse=True, post=None, dec=None, tokens=()):
    """BPE on characters: special tokens first, then bytes, then what META_VOCAB holds but for the characters in drop."""
    names = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if fallback else [])
    names += [t for t in META_VOCAB if not set(t) & set(drop) and t not in names]
    vocab = {t: i for i, t in enumerate(names)}
    merges = [m for m in META_MERGES if not set("".join(m)) & set(drop)]
    merges = [" ".join(m) for m in merges if not any(" " in p for p in m)]
    ids = place(vocab, tokens)
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")] + [added(ids[c], c, **f) for c, f in tokens],
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post, "decoder": dec,
            "model": {"type": "BPE", "dropout": None, "unk_token": unk, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": fuse, "byte_fallback": fallback, "vocab": vocab, "merges": merges}}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def seq(*items, key="pretokenizers"):
    return {"type": "Sequence", key: list(items)}


def bl(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def template(before, after, ids):
    tok = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [tok(t) for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [tok(t) for t in after],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in set(before) | set(after)}}


CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL
QWEN2 = CONTRACTION + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + TAIL
UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
TEKKEN = UPPER + "|" + LOWER + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
SPECIALS = [("<s>", {}), ("</s>", {"rstrip": True}), ("<mask>", {"lstrip": True, "special": False}), ("<|end|>", {"lstrip": True, "rstrip": True}),
            ("TOK", {"single_word": True, "special": False}), ("tok", {"normalized": True, "special": False})]
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
SPM_DECODER = seq({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                  {"type": "Strip", "content": " ", "start": 1, "stop": 0}, key="decoders")
META = lambda scheme, cut: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
BYTE_IDS = place(BYTE_VOCAB, SPECIALS)

TOKENIZERS = {
    "gpt2": byte_level(bl(), tokens=SPECIALS),
    "gpt2-prefix": byte_level(bl(prefix=True), tokens=SPECIALS, post=bl(), decoder=None),
    "llama3": byte_level(seq(split(LLAMA3), bl(regex=False)), tokens=SPECIALS, ignore_merges=True,
                         post=seq(bl(), template(["<s>"], ["</s>"], BYTE_IDS), key="processors")),
    "qwen2-nfc": byte_level(seq(split(QWEN2), bl(regex=False)), {"type": "NFC"}, SPECIALS, merges=[" ".join(m) for m in BYTE_MERGES]),
    "nfkc": byte_level(bl(), {"type": "NFKC"}, SPECIALS),
    "nfd-strip": byte_level(bl(), seq({"type": "NFD"}, {"type": "Strip", "strip_left": True, "strip_right": True}, key="normalizers"), SPECIALS),
    "tekken": byte_level(seq(split(TEKKEN), bl(regex=False)), tokens=SPECIALS),
    "cl100k-removed": byte_level(seq(split(LLAMA3, "Removed", True), bl(regex=False)), tokens=SPECIALS),
    "smollm": byte_level(seq({"type": "Digits", "individual_digits": True}, bl()), tokens=SPECIALS),
    "falcon": byte_level(seq({"type": "Punctuation", "behavior": "Contiguous"}, bl(), {"type": "Digits", "individual_digits": False},
                             split("[0-9][0-9][0-9]")), tokens=SPECIALS),
    "deepseek-v3": byte_level(seq(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK), bl(regex=False)), tokens=SPECIALS),
    "roberta": byte_level(bl(), tokens=SPECIALS, post={"type": "RobertaProcessing", "sep": ["</s>", BYTE_IDS["</s>"]], "cls": ["<s>", BYTE_IDS["<s>"]],
                                                       "trim_offsets": True, "add_prefix_space": False}),
    "llama2": characters(seq(PREPEND, REPLACE, key="normalizers"), None, dec=SPM_DECODER, post=template(["<s>"], [], {"<s>": 1}),
                         tokens=[("<mask>", {"normalized": True}), ("TOK", {"rstrip": True})]),
    "gemma": characters(REPLACE, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}, dec=SPM_DECODER),
    "mistral": characters(None, META("first", False), dec=SPM_DECODER, tokens=[("<mask>", {}), ("<|end|>", {"lstrip": True})]),
    "metaspace-always": characters(None, META("always", True), dec=META("always", True)),
    "metaspace-never": characters(None, META("never", True), dec=META("never", True)),
    "unknown-fused": characters(REPLACE, None, fallback=False, drop="aeé中"),
    "unknown-single": characters(REPLACE, None, fallback=False, drop="aeé中", fuse=False),
    "unknown-dropped": characters(None, {"type": "Whitespace"}, fallback=False, drop="aeé中", unk=None),
    "whitespace-split": characters(None, {"type": "WhitespaceSplit"}, fallback=False, drop="x"),
}

SENTENCEPIECE = {
    "spm-identity": dict(normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False),
    "spm-collapse": dict(normalization_rule_name="identity", unk_id=3, bos_id=-1, eos_id=1, pad_id=0, unk_surface="<?>"),
    "spm-symbols": dict(normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, byte_fallback=True,
                        user_defined_symbols=["\n", "  ", "   ", "TOK", "①"], control_symbols=["<ctl>"]),
    "spm-spanning": dict(normalization_rule_name="identity", split_by_whitespace=False, byte_fallback=True, remove_extra_whitespaces=False),
    "spm-unused": dict(normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False),
}


def sentencepiece_model(name, options):
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(TEXT)
        f.flush()
        sentencepiece.SentencePieceTrainer.train(input=f.name, model_writer=out, model_type="bpe", vocab_size=560, character_coverage=1.0,
                                                 max_sentence_length=100000, minloglevel=2, hard_vocab_limit=False, **options)
    m = sentencepiece_model_pb2.ModelProto()
    m.ParseFromString(out.getvalue())
    if name == "spm-unused":
        for p in m.pieces:
            if p.type == 1 and len(p.piece) > 1 and random.random() < 0.3:
                p.type = 5
    m.trainer_spec.ClearField("input")
    return m.SerializeToString(deterministic=True)


cases = []
for name, doc in TOKENIZERS.items():
    t = Tokenizer.from_str(json.dumps(doc))
    rows = []
    for s in STRINGS:
        ids, full = t.encode(s, add_special_tokens=False).ids, t.encode(s).ids
        rows.append([ids, t.decode(ids, skip_special_tokens=False), full])
    cases.append({"name": name, "json": doc, "rows": rows})
for name, options in SENTENCEPIECE.items():
    data = sentencepiece_model(name, options)
    s = sentencepiece.SentencePieceProcessor(model_proto=data)
    rows = [[ids, s.decode(ids), ids] for ids in s.encode(STRINGS, out_type=int)]
    cases.append({"name": name, "model": base64.b64encode(data).decode(), "rows": rows})

out = json.dumps({"strings": STRINGS, "cases": cases}, ensure_ascii=True, separators=(",", ":")).encode()
sys.stdout.buffer.write(gzip.compress(out, mtime=0))
