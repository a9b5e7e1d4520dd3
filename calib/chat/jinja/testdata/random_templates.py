"""Writes random.json: random templates with what Jinja2 makes of them in the environment of Transformers.

    python random_templates.py COUNT SEED OUT

random.json.gz in this directory is a sample of 80,000. Left out were the few on which the interpreter differs on purpose:
Markup, hashing of ranges, slices of constants that cannot be sliced (Jinja2 folds them to undefined), titles of "ß".
To look for differences: QUANTIZE_SNIPPETS=OUT go test -run Snippets
"""
import datetime
import json
import random
import sys
import warnings

from transformers.utils import chat_template_utils as chat

warnings.simplefilter("ignore")


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 0, 0)


chat.datetime = Fixed
with open("snippets.json", encoding="utf-8") as f:
    CTX = json.load(f)["context"]

ATOMS = """s e u n neg f t none l nest d empty rows text q mixed html lines undef 1 0 -1 2.5 "a" "" "é中" [1,"a"] (1,2) {"k":1}
    true false range(3) "Hello" [] {} rows[0] d.a l[0] nest[1] mixed[6] s[1:3]""".split()
BINARY = ["+", "-", "*", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or", "/"]
FILTERS = """upper lower trim length string list first last join(",") default("z") default("z",true) tojson int float abs sort
    reverse|list capitalize title replace("a","b") map("string")|list select|list reject("none")|list unique|list sum min max
    indent(2) items|list round(1) selectattr("v")|list map(attribute="k")|list tojson(indent=2) dictsort count""".split()
TESTS = """defined undefined none string number mapping iterable sequence boolean integer float odd even eq(1) in([1,"a"]) true
    false lower upper divisibleby(2) ne("a")""".split()
METHODS = """.upper() .strip() .split() .split("l") .startswith("H") .get("a") .items()|list .keys()|list .replace("l","")
    .find("o") .title() .endswith(("d","b")) .rstrip("d") .lstrip() .splitlines() .count("l") .join(["x","y"]) .values()|list
    .partition("l") .rsplit("l",1) .isdigit() .isupper() .capitalize() .index(1) .split(none,1)""".split()
SUBSCRIPTS = '[0] [-1] ["a"] [1:] [:-1] [::-1] .a .k ["k"] [5] [::2] [1:10:2] .0 [n]'.split()


class Writer:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def expr(self, depth):
        pick, sub = self.r.choice, lambda: self.expr(depth - 1)
        if depth <= 0 or self.r.random() < 0.2:
            return pick(ATOMS)
        forms = [
            (30, lambda: f"{sub()} {pick(BINARY)} {sub()}"), (10, lambda: f"({sub()})"), (18, lambda: f"{sub()}|{pick(FILTERS)}"),
            (8, lambda: f"{sub()} is {pick(['', '', 'not '])}{pick(TESTS)}"), (10, lambda: f"({sub()}){pick(METHODS)}"),
            (10, lambda: f"({sub()}){pick(SUBSCRIPTS)}"), (4, lambda: f"{sub()} if {sub()} else {sub()}"), (3, lambda: f"not {sub()}"),
            (3, lambda: f"[{sub()}, {sub()}]"), (2, lambda: f"{{{self.expr(0)}: {sub()}}}"), (2, lambda: f"-{sub()}"),
        ]
        return self.r.choices([f for _, f in forms], [w for w, _ in forms])[0]()

    def space(self):
        return self.r.choice(["", " ", "\n", "\n  ", "\t", "x\n", " y "])

    def tag(self, body):
        return self.r.choice(["{%", "{%", "{%-", "{%+"]) + " " + body + " " + self.r.choice(["%}", "%}", "-%}"])

    def body(self, depth):
        pick, sub = self.r.choice, lambda: self.body(depth - 1)
        forms = [(45, lambda: self.space() + pick(["{{", "{{-"]) + " " + self.expr(2) + " " + pick(["}}", "-}}"]) + self.space())]
        if depth > 0:
            loop = ["{{ i }}", "{{ loop.index }}", "{{ loop.last }}", ""]
            forms += [
                (15, lambda: self.space() + self.tag("if " + self.expr(2)) + sub() + self.tag("else") + sub() + self.tag("endif") + self.space()),
                (15, lambda: self.space() + self.tag("for i in " + self.expr(1)) + pick(loop) + sub() + self.tag("endfor") + self.space()),
                (10, lambda: self.tag(f"set {pick(['s', 'x', 'n'])} = {self.expr(2)}") + sub()),
                (5, lambda: f"{{% set ns = namespace(v={self.expr(1)}) %}}{{% for j in [1,2] %}}{{% set ns.v = "
                            f"{pick(['ns.v ~ j', '[ns.v]', 'ns.v + 1'])} %}}{{% endfor %}}{{{{ ns.v }}}}"),
                (5, lambda: f"{{% macro m(a, b={self.expr(1)}) %}}{sub()}{{{{ a }}}}{{{{ b }}}}{{% endmacro %}}{{{{ m({self.expr(1)}) }}}}"),
                (5, lambda: "{# c #}" + self.space() + sub() + sub()),
            ]
        return self.r.choices([f for _, f in forms], [w for w, _ in forms])[0]()


def main(count, seed, path):
    writer, cases = Writer(seed), []
    while len(cases) < count:
        src = writer.body(writer.r.choice([0, 0, 1, 2, 3]))
        if len(src) > 400:
            continue
        case = {"src": src}
        try:
            case["out"] = chat._compile_jinja_template(src).render(**json.loads(json.dumps(CTX)))
        except Exception as e:  # noqa: BLE001 - whatever Python raises is the expectation
            case["err"] = f"{type(e).__name__}: {e}"
        if " at 0x" not in case.get("out", "") and len(case.get("out", "")) < 5000:
            cases.append(case)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"context": CTX, "cases": cases}, f, ensure_ascii=False)


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
