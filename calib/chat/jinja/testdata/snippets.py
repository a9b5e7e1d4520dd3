"""Writes snippets.json: small templates with what Jinja2 makes of them in the environment of Transformers.

Run with a Python that has transformers installed, in this directory: python snippets.py
"""
import datetime
import json

from transformers.utils import chat_template_utils as chat


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 0, 0)


chat.datetime = Fixed

CTX = {
    "s": "Hello World", "e": "", "u": "é中😀ß", "n": 7, "neg": -7, "f": 2.5, "big": 1e16, "small": 0.00001, "t": True,
    "none": None, "l": [3, 1, 2], "nest": [[1, 2], [3, 4]], "d": {"b": 1, "a": 2, "items": "x"}, "empty": [],
    "rows": [{"k": "B", "v": 2, "in": {"x": 1}}, {"k": "a", "v": 1, "in": {"x": 2}}, {"k": "c", "v": 3, "in": {"x": 0}}],
    "text": "  a b\n\tc  ", "q": "it's \"q\" \\ \n", "mixed": [1, "a", None, True, 1.5, [1], {"k": "v"}],
    "html": "<a href='x'>&\"</a>", "lines": "a\nb\r\nc\n\nd",
}

BLOCKS = {
    "whitespace": [
        "a {% if t %} b {% endif %} c", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a {%- if t -%} b {%- endif -%} c",
        "a\n  {%+ if t %}x{% endif +%}\nb", "  {{ n }}\n  {{ n }}", "a {{- n -}} b", "x\n\n{%- set y = 1 -%}\n\n{{ y }}",
        "{# c #}\na", "a\n   {# c #}\nb", "a {#- c -#} b", "a\n  {#+ c +#}\nb", "{% raw %}{{ x }} {% if %}{% endraw %}!",
        "a\n  {% raw -%}  {{ x }}  {%- endraw %}\nb", "{%- raw -%} a {%- endraw -%} b", "line\n", "line\n\n", "\n{% if t %}\nx\n{% endif %}\n",
        "a\r\nb\r{{ n }}", "{{ '{{' }}{{ '%}' }}", "{{ \"}}\" }}", "{ {{ n }} }", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': {}}}['a'] }}",
        "a\n\t{%- if t %}\n\tb\n\t{%- endif %}\nc", "{% for i in l %}\n  {{ i }}\n{% endfor %}", "{% for i in l -%}\n  {{ i }}\n{%- endfor %}",
        "{{-1}}", "{{ -1 }}", "{{+1 }}", "a{{ ''-}} \n b", "\u00a0{%- if t %}x{% endif %}", "{%if t%}y{%endif%}", "{%- if t %}\n\n\nx{% endif %}",
        "{% if t %}a{% endif %}\n{% if t %}b{% endif %}", "x{% generation %}\n y {% endgeneration %}z", "{{ n }}\n", "{{ n", "{% if t %}",
        "{% if t %}{% endfor %}", "{{ n }", "{% raw %}x", "{{ 'abc }}", "{% unknown %}", "{{ }}", "{% %}", "{{ n n }}", "{{ (n }}", "{{ n) }}",
        "{{ [1, 2 }}", "%}", "}}", "#}", "{", "{{ n if }}", "{% for in l %}{% endfor %}", "{% for x l %}{% endfor %}", "{% set = 1 %}",
        "{% break %}", "{% if t %}{% else %}{% else %}{% endif %}", "{% elif t %}", "{% endif %}", "{{ n | }}", "{{ n is }}", "{{ n. }}",
    ],
    "literals": [
        "{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 0o17 }}", "{{ 1e16 }} {{ 1e15 }} {{ 123456789.125 }} {{ 1e-4 }} {{ 1e-5 }}",
        "{{ 'a' 'b' \"c\" }}", "{{ 'a\\n\\t\\x41\\u00e9\\U0001F600\\101\\q\\'\\\"' }}", "{{ 'a\\\nb' }}", "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}",
        "{{ [] }} {{ [1] }} {{ [1, 'a', none,] }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ 1, 2 }}", "{{ {} }} {{ {'a': 1, 2: 'b', none: 3,} }}",
        "{{ {1: 'a', True: 'b', 1.0: 'c'} }}", "{{ 'é中😀' }} {{ ['é中😀\\u200b\\x7f'] }}", "{{ [q] }}", "{{ mixed }}", "{{ d }}", "{{ u }}", "{{ [1e16, 0.1, 1e-5] }}",
        "{{ big }} {{ small }} {{ f }}", "{{ {[1]: 2} }}", "{{ 1.e }}", "{{ {'a' 1} }}", "{{ {'a': 1 'b': 2} }}", "{{ 9223372036854775807 }}",
    ],
    "arithmetic": [
        "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }}", "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }}",
        "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}", "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 1 - 2 - 3 }} {{ 2 * 3 % 4 }}",
        "{{ 1 + 1.0 }} {{ true + 1 }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }}", "{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1, 2] * 2 }} {{ 'a' * 0 }} {{ 'a' * -1 }}",
        "{{ 1 ~ 'a' ~ none ~ true ~ 1.5 ~ [1] }}", "{{ 1 + 2 ~ 3 + 4 }}", "{{ 'a' ~ undef ~ 'b' }}", "{{ -n }} {{ +n }} {{ - -n }} {{ -true }}", "{{ not n }} {{ not not n }} {{ not undef }}",
        "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ undef + 1 }}", "{{ 1 + undef }}", "{{ 'a' + undef }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ -'a' }}",
        "{{ 'a' * 1.5 }}", "{{ '%s-%d-%5.2f|%-5s|%05d|%x|%r|%%' % ('a', 3, 2.5, 'b', 42, 255, 'c') }}", "{{ '%s' % 5 }}", "{{ '%s %s' % 'a' }}", "{{ 'a' % 1 }}", "{{ '%d' % 'x' }}", "{{ '%+d % d %e' % (3, 4, 12345.678) }}",
        "{{ n % 2 == 1 }} {{ (n % 2) ~ 'x' }}", "{{ 10 - 2 | abs }}", "{{ (-3) | abs }} {{ -3 | abs }}", "{{ n + 1 if t else 0 }}", "{{ 0.1 + 0.2 }}", "{{ 1e308 * 10 }}", "{{ 3.0 }} {{ 3.0 * 2 }} {{ 10 ** 3 }}",
    ],
    "comparison": [
        "{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ none == none }} {{ none == false }} {{ [1] == [1.0] }} {{ (1,) == [1] }}", "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 3 > 2 >= 2 != 1 }}",
        "{{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ 'é' > 'z' }} {{ [1, 2] < [1, 3] }} {{ [1] < [1, 0] }}", "{{ d == {'a': 2, 'b': 1, 'items': 'x'} }} {{ {} == {} }}",
        "{{ 'ell' in s }} {{ 'x' not in s }} {{ 1 in l }} {{ 'b' in d }} {{ 5 in l }} {{ '' in s }}", "{{ 1 in undef }} {{ undef in l }} {{ undef == undef }} {{ undef == none }} {{ undef != 1 }}",
        "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ 1 in 'a' }}", "{{ 1 in 5 }}", "{{ undef < 1 }}", "{{ 1 < undef }}", "{{ [1] in d }}", "{{ undef in d }}", "{{ undef in s }}", "{{ not 1 == 2 }} {{ not 'a' in s }}",
        "{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 3 }} {{ '' or none }} {{ 1 or undef.x }} {{ 0 and undef.x }}", "{{ t and not none or false }}", "{{ 'a' if t }}|{{ 'a' if not t }}|{{ 'a' if e else 'b' if t else 'c' }}",
        "{{ ('a' if not t).x }}", "{{ range(3) == range(0, 3) }}", "{{ l == l }} {{ l in [l] }} {{ nest[0] == [1, 2] }}", "{{ 'a' == \"a\" }}",
    ],
    "access": [
        "{{ d.a }} {{ d['a'] }} {{ d.missing }}|{{ d['missing'] }}|", "{{ d['items'] }}", "{{ d.items() | list }}", "{{ l[0] }} {{ l[-1] }} {{ l[5] }}|{{ l['x'] }}|", "{{ l.0 }} {{ nest.1.0 }} {{ nest[1][0] }}",
        "{{ s[0] }} {{ s[-1] }} {{ s[99] }}| {{ u[2] }}", "{{ s[1:4] }} {{ s[:3] }} {{ s[-3:] }} {{ s[::2] }} {{ s[::-1] }} {{ s[5:1] }}| {{ s[8:2:-2] }}", "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[10:] }} {{ l[-10:2] }} {{ l[:] }} {{ (1,2,3)[1:] }}",
        "{{ u[1:3] }} {{ u[::-1] }}", "{{ undef }}|{{ undef is defined }}", "{{ undef.x }}", "{{ undef['x'] }}", "{{ undef[1:] }}", "{{ undef() }}", "{{ d.missing.x }}", "{{ none.x }}|", "{{ none['x'] }}|", "{{ n.x }}|{{ n[0] }}|",
        "{{ l[1.0] }}|{{ l[true] }}", "{{ s.x }}|", "{{ l[::0] }}", "{{ d[1:] }}", "{{ n[1:] }}", "{{ s['upper']() }} {{ l['index'](1) }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ l.sort() }}", "{{ d.setdefault('x', 1) }}",
        "{{ s.__class__ }}|", "{{ (1, 2)[0] }}", "{{ l['a':] }}", "{{ l[none:2] }}", "{{ l[1:none] }}", "{{ range(5)[1:3] | list }} {{ range(5)[-1] }}", "{{ n() }}", "{{ 'a'() }}", "{{ rows[0].k }} {{ rows[0]['in'].x }} {{ rows[0]['in']['x'] }}",
        "{{ {'a': 1}.a }} {{ {'a': {'b': 2}}.a.b }} {{ [1, 2].0 }} {{ 'abc'[1] }} {{ 'abc'.upper() }}", "{{ d.keys() | list }} {{ d.values() | list }} {{ d.items() }}", "{{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }}",
        "{{ d.copy() }} {{ l.copy() }} {{ l.count(1) }} {{ l.index(2) }}", "{{ l.index(9) }}", "{{ d.get() }}", "{{ d.keys()[0] }}|", "{{ (d.items() | list)[0][1] }}", "{{ 5 .x }}|", "{{ d | attr }}",
    ],
    "scoping": [
        "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% for i in l %}{{ x }}{% set x = i %}{{ x }} {% endfor %}", "{% set x = 0 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }} {% endfor %}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
        "{% if t %}{% set y = 1 %}{% endif %}{{ y }}", "{% if not t %}{% set y = 1 %}{% endif %}{{ y }}|", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1, 2] %}{{ b }}{{ a }}", "{% set (a, b) = 'xy' %}{{ a }}{{ b }}", "{% set a, (b, c) = 1, (2, 3) %}{{ c }}", "{% set a, b = 1, 2, 3 %}",
        "{% set x %}a{{ n }}b{% endset %}[{{ x }}]", "{% set x | upper %}a{{ n }}b{% endset %}[{{ x }}]", "{% set x | trim | replace('a', 'c') %} aba {% endset %}[{{ x }}]", "{% set x %}{% set z = 1 %}{% endset %}{{ z }}|", "{% set d2 = {'a': 1} %}{% set d2.a = 2 %}", "{% set ns = namespace() %}{{ ns.x }}|{{ ns.x is defined }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }} {{ ns }}",
        "{% set ns = namespace(_x=1) %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}", "{% for i in l %}{% if loop.first %}{% set first = i %}{% endif %}{% endfor %}{{ first is defined }}",
        "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "{% with %}{% set q2 = 1 %}{{ q2 }}{% endwith %}{{ q2 }}|", "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% block x %}{{ n }}{% set z = 3 %}{% endblock %}{{ z }}|", "{% block x %}a{% endblock x %}b", "{% filter upper %}ab{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}",
        "{% set true = 1 %}", "{% set none = 1 %}", "{% set n = n + 1 %}{{ n }}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for i in l %}{% set outer = loop %}{% for j in nest %}{{ outer.index }}{% endfor %}{% endfor %}", "{{ loop }}|",
        "{% set ns = namespace(a=namespace(b=1)) %}{{ ns.a.b }}", "{% set undef.x = 1 %}",
    ],
    "loops": [
        "{% for i in l %}{{ i }},{% endfor %}", "{% for i in empty %}x{% else %}none{% endfor %}", "{% for i in l %}x{% else %}none{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}", "{% for k, v in d | items %}{{ k }}={{ v }} {% endfor %}", "{% for c in 'aé中' %}{{ c }}.{% endfor %}",
        "{% for i in undef %}x{% endfor %}|", "{% for i in none %}x{% endfor %}", "{% for i in 5 %}x{% endfor %}", "{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{{ loop.last }} {% endfor %}", "{% for i in l if i > 9 %}x{% else %}none{% endfor %}", "{% for a, b in nest %}{{ a }}{{ b }} {% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for a in nest %}{{ a }}{% endfor %}",
        "{% for i in l %}{{ loop.index }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.length }} {{ loop.previtem }} {{ loop.nextitem }};{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in [1, 1, 2] %}{{ loop.changed(i) }} {% endfor %}", "{% for i in l %}{{ loop.previtem is defined }} {% endfor %}", "{% for i in l %}{{ loop.depth }}{{ loop.x }}{% endfor %}",
        "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "{% for i in range(2, 10, 3) %}{{ i }} {% endfor %}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}", "{{ range(3) }} {{ range(1, 5) }} {{ range(5) | length }} {{ range(0) | list }}", "{{ range(1000000) }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}",
        "{% for i in l | sort %}{{ i }}{% endfor %}", "{% for i in l | reverse %}{{ i }}{% endfor %}", "{% for m in rows | selectattr('v', '>', 1) %}{{ m.k }}{% endfor %}", "{% for i in l if loop.index %}{% endfor %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l + [9] %}{{ i }}{% endfor %}", "{% for i in (l if t else []) %}{{ i }}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
        "{% for i in l %}{{ loop.first and 'F' or '' }}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for i in l %}{% endfor %}{{ loop is defined }}", "{% for i in 'ab' %}{% for i in 'cd' %}{{ i }}{% endfor %}{{ i }}{% endfor %}", "{% for x in l %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}", "{% for i in d.values() %}{{ i }};{% endfor %}",
    ],
    "macros": [
        "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=5, a=4) }} {{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(x=1) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}",
        "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{{ f is defined }}{% macro f() %}{% endmacro %}{{ f is defined }}", "{% macro f() %}{{ later }}{% endmacro %}{% set later = 4 %}{{ f() }}", "{% set x = 1 %}{% macro f() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}", "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{{ n }}{% endcall %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}",
        "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(x) %}  {{ x }}\n{% endmacro %}[{{ f(1) | trim }}]", "{% macro f(x) -%}\n {{ x }}\n{%- endmacro %}[{{ f(1) }}]", "{% macro f(a, b) %}{{ a is defined }}{{ b is defined }}{% endmacro %}{{ f(1) }}", "{% macro f(*a) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ nosuch(1) }}", "{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}",
        "{% macro f(x) %}{{ x | upper }}{% endmacro %}{{ l | map('string') | map('upper') | join(',') }} {{ f(s) | length }}", "{% macro f(d) %}{% for k in d %}{{ k }}{% endfor %}{% endmacro %}{{ f({'a': 1}) }} {{ f(**{'d': 'xy'}) }} {{ f(*['zw']) }}", "{% macro f() %}{{ n }}{% endmacro %}{{ f() }} {{ f is callable }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
        "{% macro f() %}{% break %}{% endmacro %}", "{% macro f() %}{{ loop }}{% endmacro %}{% for i in l %}{{ f() }}{% endfor %}|", "{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, c=2) }}", "{{ raise_exception('no ' ~ n) }}", "{% if not t %}{{ raise_exception('no') }}{% endif %}ok", "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%B %-d, %Y %H:%M:%S %A %j %%') }}",
    ],
    "filters": [
        "{{ s | upper }} {{ s | lower }} {{ s | capitalize }} {{ s | title }} {{ 'foo bar-baz (qux' | title }} {{ \"it's\" | title }}", "[{{ text | trim }}] [{{ 'xxaxx' | trim('x') }}]", "{{ s | length }} {{ l | length }} {{ d | length }} {{ u | length }} {{ undef | length }} {{ l | count }}", "{{ n | length }}", "{{ none | length }}", "{{ undef | default('x') }} {{ none | default('x') }} {{ '' | default('x', true) }} {{ none | d('y', boolean=true) }} {{ undef | default }}|",
        "{{ l | join(',') }} {{ l | join }} {{ mixed | join('|') }} {{ rows | join(', ', attribute='k') }} {{ 'abc' | join('-') }}", "{{ l | first }} {{ l | last }} {{ empty | first }}| {{ s | first }} {{ s | last }} {{ d | first }}", "{{ l | sort }} {{ l | sort(reverse=true) }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ rows | sort(attribute='v') | map(attribute='k') | list }}", "{{ rows | sort(attribute='k') | map(attribute='v') | list }} {{ rows | sort(attribute='in.x') | map(attribute='k') | join }}", "{{ [1, 'a'] | sort }}",
        "{{ l | reverse | list }} {{ s | reverse }}", "{{ l | list }} {{ 'abc' | list }} {{ d | list }} {{ undef | list }}", "{{ none | list }}", "{{ l | map('string') | list }} {{ rows | map(attribute='k') | list }} {{ rows | map(attribute='zz', default='?') | list }} {{ ['a', 'b'] | map('upper') | list }} {{ ['a'] | map('replace', 'a', 'b') | list }}", "{{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ [0, 1, ''] | select | list }} {{ l | select('gt', 1) | list }} {{ l | select('in', [1, 2]) | list }}",
        "{{ rows | selectattr('k', 'equalto', 'a') | list | length }} {{ rows | selectattr('v') | list | length }} {{ rows | rejectattr('v', 'eq', 1) | map(attribute='k') | list }} {{ rows | selectattr('zz', 'defined') | list }} {{ rows | rejectattr('zz', 'undefined') | list }}", "{{ rows | selectattr('k') | length }}", "{{ (l | select('odd')) and 'yes' }}", "{% set g = l | select %}{{ g | list }}{{ g | list }}", "{{ l | map('nosuch') | list }}", "{{ l | nosuch }}", "{% if not t %}{{ l | nosuch }}{% endif %}ok", "{% if not t %}{{ l is nosuch }}{% endif %}ok", "{{ l is nosuch }}",
        "{{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}", "{{ d | items | list }}", "{{ l | items | list }}", "{{ undef | items | list }}", "{{ l | max }} {{ l | min }} {{ l | sum }} {{ rows | sum(attribute='v') }} {{ empty | sum }} {{ empty | max }}| {{ rows | map(attribute='v') | max }} {{ ['b', 'A'] | min }}", "{{ [1, 1.0, 2, 'a', 'A'] | unique | list }}",
        "{{ '3' | int }} {{ '3.7' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ none | int }} {{ true | int }} {{ '0x1f' | int(base=16) }} {{ ' 4 ' | int }}", "{{ '3.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ 'x' | float(1.5) }}", "{{ 2.5 | round }} {{ 3.14159 | round(2) }} {{ 2.3 | round(0, 'ceil') }} {{ 2.7 | round(method='floor') }} {{ 3 | round }} {{ 42.55 | round(1) }}", "{{ n | string + '!' }} {{ none | string }} {{ 1.5 | string }} {{ l | string }}",
        "{{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'aaa' | replace('', '-') }}", "{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb\n\nc' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('>>') }}|{{ 'a\nb\n' | indent }}", "{{ html | e }} {{ html | escape }}", "{{ '%s and %d' | format('a', 3) }}", "{{ s | safe }} {{ -5 | abs }} {{ 1.5 | abs }}", "{{ 'a' | abs }}", "{{ s | upper | lower | length }} {{ (s | upper)[0] }} {{ s | upper ~ 'x' }}", "{{ l | sort | first }} {{ l | first + 1 }}", "{{ l | map(attribute='x') | list }}", "{{ s | trim | length > 3 }} {{ not s | length }}", "{{ [3, [1, 2]] | string | length }}", "{{ undef | upper }}|{{ undef | trim }}|{{ undef | join }}|{{ undef | string }}|",
        "{{ undef | int }}", "{{ undef | abs }}", "{{ l | join(1) }}", "{{ s.split(' ') | map('lower') | join('_') }}", "{{ '' | first }}|", "{{ [[1], [2]] | sum(start=[]) }}", "{{ 'b' | default }} {{ l | default([]) | length }}",
    ],
    "tojson": [
        "{{ mixed | tojson }}", "{{ d | tojson }} {{ d | tojson(sort_keys=true) }}", "{{ d | tojson(indent=2) }}", "{{ {'a': [], 'b': {}, 'c': [1, {'d': 2}]} | tojson(indent=4) }}", "{{ u | tojson }} {{ u | tojson(ensure_ascii=true) }}", "{{ q | tojson }} {{ '\\x01\\x7f\\u2028</script>' | tojson }} {{ html | tojson }}", "{{ [1.0, 1e16, 1e-5, 0.1, 100000.0] | tojson }}", "{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson }}", "{{ (1, 2) | tojson }} {{ none | tojson }} {{ true | tojson }} {{ 'a' | tojson }}", "{{ undef | tojson }}", "{{ [undef] | tojson }}", "{{ range(3) | tojson }}", "{{ d | tojson(separators=(',', ':')) }} {{ d | tojson(indent=1, separators=(', ', ' : ')) }}", "{{ {'a': {'b': [1, 2]}} | tojson(indent='\t') }}", "{{ rows | tojson }}", "{{ namespace(a=1) | tojson }}", "{{ d.items() | tojson }}", "{{ {(1, 2): 3} | tojson }}",
        "{{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }}", "{{ d.keys() | list | tojson }}", "{{ 1e400 | tojson }}",
    ],
    "tests": [
        "{{ n is defined }} {{ undef is defined }} {{ undef is undefined }} {{ d.x is defined }} {{ d.a is not defined }}", "{{ none is none }} {{ n is none }} {{ undef is none }} {{ n is not none }}", "{{ s is string }} {{ n is string }} {{ n is number }} {{ f is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ t is boolean }} {{ n is boolean }}", "{{ d is mapping }} {{ l is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ undef is sequence }}", "{{ l is iterable }} {{ s is iterable }} {{ d is iterable }} {{ n is iterable }} {{ none is iterable }} {{ undef is iterable }} {{ range(3) is iterable }}", "{{ n is odd }} {{ n is even }} {{ n is divisibleby(7) }} {{ n is divisibleby 2 }}", "{{ 'a' is odd }}", "{{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is lt(3) }} {{ n is ge 7 }} {{ n is le 7 }}", "{{ n is in [7] }} {{ n is in l }} {{ n is not in l }}", "{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }}", "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is lower }} {{ '1' is lower }}",
        "{{ none is sameas none }} {{ t is sameas true }} {{ l is sameas l }}", "{{ range is callable }} {{ n is callable }} {{ undef is callable }}", "{{ n is defined and n > 3 }} {{ undef is defined or t }} {{ not n is defined }} {{ n is not defined or true }}", "{{ s is string and s | length }}", "{{ 'x' if n is defined else 'y' }} {{ 'x' if undef is defined else 'y' }}", "{{ n is defined is true }}", "{% if l is defined and l is iterable and l is not string %}yes{% endif %}", "{{ -1 is number }} {{ (1 + 1) is number }} {{ 1 + 1 is number }}", "{{ l | length is eq 3 }} {{ l is eq [3, 1, 2] }} {{ d is eq {'a': 1} }}", "{{ n is string or n is number }}",
    ],
    "methods": [
        "[{{ text.strip() }}] [{{ text.lstrip() }}] [{{ text.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'abcba'.strip('ab') }}] [{{ '\\n a'.lstrip('\\n') }}]", "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b  c '.split(none, 1) }} {{ 'abc'.split('x') }} {{ ''.split(',') }} {{ ''.split() }}", "{{ 'a b c d'.rsplit(none, 2) }} {{ 'a\\n\\nb'.split('\\n') }} {{ '<think>x</think>y'.split('</think>')[-1] }} {{ 'a'.split('a') }}", "{{ 'a'.split('') }}", "{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('l', 2) }} {{ s.endswith('o', 0, 5) }} {{ s.startswith('') }}", "{{ s.startswith(1) }}", "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ 'hELLO wORLD'.title() }} {{ \"they're\".title() }} {{ 'ß'.upper() }}", "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('o', '') }} {{ 'aa'.replace('', '-') }}",
        "{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('x') }} {{ s.find('o', 5) }} {{ u.find('😀') }} {{ s.index('W') }} {{ s.count('l') }} {{ s.count('') }} {{ 'aaa'.count('aa') }} {{ s.find('o', 5, 6) }}", "{{ s.index('x') }}", "{{ ','.join(['a', 'b']) }} {{ ''.join('abc') }} {{ '-'.join([]) }}|{{ '-'.join({'k': 1}) }}", "{{ ','.join([1]) }}", "{{ s.partition(' ') }} {{ s.rpartition('o') }} {{ s.partition('x') }} {{ s.rpartition('x') }}", "{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isalpha() }} {{ 'abc'.islower() }} {{ 'A1'.isupper() }} {{ 'é'.isascii() }} {{ 'Ab'.isupper() }}", "{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\\x0bb\\u2028c'.splitlines() }}", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removesuffix('y') }}",
        "{{ s.nosuch() }}", "{{ s.nosuch }}|", "{{ s.strip(none) }}", "{{ s.strip(1) }}", "{{ s.split(1) }}", "{{ 'a' if 'b'.strip else 'c' }}", "{{ n.strip() }}", "{{ none.strip() }}", "{{ l.strip() }}", "{{ (text | trim).split('\\n')[0].strip() }}", "{{ s[1:].upper()[:2] }} {{ 'a b'.split()[1] }} {{ 'x'.upper().lower() }}", "{{ '\\x1c a \\x85'.strip() }}|{{ '\\u200ba'.strip() | length }}", "{{ 'ÀÉ'.lower() }} {{ 'àé'.upper() }}",
    ],
    "syntax": [
        "{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if undef %}a{% endif %}b", "{% if l %}a{% endif %}{% if empty %}b{% endif %}{% if d %}c{% endif %}{% if {} %}d{% endif %}", "{% if n == 7 and (s == 'x' or t) %}y{% endif %}", "{% if not (n == 7) %}x{% else %}y{% endif %}", "{% if 'a' in ['a', 'b'] and 'c' not in 'ab' %}y{% endif %}", "{{ n\n+\n1 }}", "{%\nif t\n%}x{% endif %}", "{{ 'a'\n'b' }}", "{{ l[0]\n}}", "{{- 'x' -}}\n\n y", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ nothing_here }}", "{{ d.zz is defined }}", "{{ n }}",
        "{{ not t and t }} {{ t or t and none }}", "{{ 1 if t else 2 if t else 3 }} {{ (1 if none else 2) + 1 }}", "{{ [1, 2, 3][1] }} {{ [1, 2][0:1] }} {{ {'a': 1}['a'] }} {{ ('a', 'b')[1] }}", "{{ n|string|length }} {{ n | string | length + 1 }}", "{{ l|join(', ')|upper }}", "{{ -l[0] }} {{ -l[0] ** 2 }} {{ not l[0] }}", "{{ a.b.c if a is defined }}|", "{{ n > 5 == true }}", "{{ n in l or 3 in l }}", "{{ 'a' ~ 'b' == 'ab' }} {{ 1 + 1 == 2 }} {{ 2 * 2 > 3 and true }}", "{{ d.a + d['b'] }} {{ d.a * 2 ~ 'x' }}", "{{ n ; n }}", "{{ n, }}", "{{ *l }}", "{{ f(x=1, 2) }}", "{{ n ! }}", "{{ $x }}", "{{ n.1x }}", "{{ 'é' ~ é }}|", "{% set é = 1 %}{{ é }}", "{{ _x }}|{% set _x = 1 %}{{ _x }}", "{{ 1if t else 2 }}", "{% do l %}",
        "{{ t }}", "{{ n if n else }}", "{% if %}x{% endif %}", "{% for %}{% endfor %}", "{% macro %}{% endmacro %}", "{% set %}", "{% endset %}", "{% call %}{% endcall %}", "{% filter %}{% endfilter %}", "{% with %}", "{% block %}{% endblock %}", "{% set x = %}", "{% if t %}a{% endif x %}", "{% generation %}", "{{ 'a' is }}", "{{ l | map( }}", "{{ {'a' } }}", "{{ l[1 }}", "{{ (1, 2 }}",
    ],
}


def main():
    out = []
    for group, sources in BLOCKS.items():
        for src in sources:
            case = {"group": group, "src": src}
            try:
                # A fresh copy of the context per case: nothing a template does may leak into the next.
                case["out"] = chat._compile_jinja_template(src).render(**json.loads(json.dumps(CTX)))
            except Exception as e:  # noqa: BLE001 - whatever Python raises is the expectation
                case["err"] = f"{type(e).__name__}: {e}"
            out.append(case)
    with open("snippets.json", "w", encoding="utf-8") as f:
        json.dump({"context": CTX, "cases": out}, f, ensure_ascii=False, indent=1)
        f.write("\n")
    print(len(out), "snippets,", sum("out" in c for c in out), "render")


main()
