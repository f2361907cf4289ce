#!/usr/bin/env python3
"""Checks that a name in namespace varve means one thing.

Two definitions of one name (a class, an enum, an inline function, a constant of a header, ...) in two files that are
linked into one program are undefined behaviour, of which neither compiler nor linker says a word: the linker takes the
code of one for both. So every name in namespace varve, and in namespaces within it, is defined in one file alone,
whatever is linked with what: in a header if others use it, else in an anonymous namespace, which is free. Overloads are
different functions. Of a source, names that no other source can mean (static ones, constants, aliases) are free, too.
Where one of two sources is to be linked (with a library or without it), both may define the same functions and
variables, unless inline: of two that are linked after all, the linker complains.

    tools/check_names.py               checks this repository
    tools/check_names.py --self-test   checks the checker against trees with known faults
"""

import argparse
import collections
import pathlib
import re
import sys
import tempfile

FOLDERS = ("include", "src", "tools", "bindings", "examples", "tests", "fuzz", "bench")
NAMESPACE = "varve"
HEADERS = {".h", ".hpp"}
OF_FORTRAN = {"scrf.h"}
SOURCES = {".cpp", ".cc"}

TOKEN = re.compile(
    r"""
      (?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
    | (?P<directive>^[ \t]*\#[ \t]*(?P<what>\w+)(?:[^\n\\]|\\.|\\\n)*)
    | (?P<raw>(?:u8|u|U|L)?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
    | (?P<string>(?:u8|u|U|L)?"(?:[^"\\\n]|\\.)*")
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<character>(?:u8|u|U|L)?'(?:[^'\\\n]|\\.)+')
    | (?P<word>[A-Za-z_]\w*)
    | (?P<sign>::|->|\[\[|\]\]|&&|.)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
CONDITIONS = {"if", "ifdef", "ifndef", "elif", "else", "endif"}
CLOSING = {"(": ")", "[": "]", "{": "}", "[[": "]]"}
CLASS_KEYS = {"class", "struct", "union", "enum"}
# What may be the last word of a parameter without being its name.
TYPE_WORDS = {"bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "void", "auto", "const",
              "char8_t", "char16_t", "char32_t", "wchar_t"}

# `strong`: the linker complains if there are two.
Definition = collections.namedtuple("Definition", "name kind path line strong")


class Confused(Exception):
    """A file that this program cannot follow."""


class Token(str):
    """A token's text, with its line, and whether it is a word."""

    line = 0
    word = False


def tokens_of(text):
    """The tokens of a file without comments and directives; of what a condition chooses among, the first choice."""
    tokens = []
    line, at = 1, 0
    skipping = []  # for each condition around: whether its first choice is over
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        kind, what = match.lastgroup, match.group("what")
        if what is not None:
            if what in ("if", "ifdef", "ifndef"):
                # "#if 0" chooses nothing.
                skipping.append(re.match(r"\s*#\s*if\s+0\b", match.group()) is not None)
            elif what in CONDITIONS and not skipping:
                raise Confused(f"#{what} without #if, in line {line}")
            elif what in ("elif", "else"):
                skipping[-1] = True
            elif what == "endif":
                skipping.pop()
            continue
        if match.group("comment") is not None or match.group().isspace() or any(skipping):
            continue
        token = Token(match.group())
        token.line, token.word = line, kind == "word"
        tokens.append(token)
    if skipping:
        raise Confused("#if without #endif")
    return tokens


class Parser:
    """Goes through what stands at namespace scope in one file, past all bodies."""

    def __init__(self, path, tokens):
        self.path, self.tokens, self.at = path, tokens, 0
        self.in_header = path.suffix in HEADERS
        self.definitions = []

    def confused(self, what):
        line = self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 1
        return Confused(f"{what}, in line {line}")

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def skip_block(self):
        """Past the bracket at hand and all that is in it."""
        ends = []
        while True:
            token = self.peek()
            if token is None:
                raise self.confused("a bracket is not closed")
            if token in CLOSING:
                ends.append(CLOSING[token])
            elif ends and token == ends[-1]:
                ends.pop()
            elif token == "]]" and ends[-2:] == ["]", "]"]:
                del ends[-2:]  # a[b[c]]
            elif token in (")", "]", "}", "]]"):
                raise self.confused(f"{token} closes nothing")
            self.at += 1
            if not ends:
                return

    def skip_angles(self):
        """Past the template arguments or parameters at hand."""
        depth = 0
        while True:
            token = self.peek()
            if token is None or token in (";", "{"):
                raise self.confused("< is not closed")
            if token in CLOSING:
                self.skip_block()
                continue
            depth += (token == "<") - (token == ">")
            self.at += 1
            if depth == 0:
                return

    def skip_to_end(self):
        """Past the semicolon that ends a declaration."""
        while True:
            token = self.peek()
            if token is None:
                raise self.confused("a declaration does not end")
            if token in CLOSING:
                self.skip_block()
                continue
            self.at += 1
            if token == ";":
                return

    def record(self, scope, name, kind, token, strong=False):
        if scope is not None and scope[:1] == (NAMESPACE,):
            self.definitions.append(Definition("::".join((*scope, name)), kind, self.path, token.line, strong))

    def scope(self, names):
        """What is in a namespace, up to the end of it. `names` is None if all in it is this file's own."""
        while self.peek() is not None and self.peek() != "}":
            self.declaration(names)

    def block_scope(self, names):
        self.at += 1
        self.scope(names)
        if self.peek() != "}":
            raise self.confused("a namespace is not closed")
        self.at += 1

    def declaration(self, names):
        token = self.peek()
        if token == ";":
            self.at += 1
        elif token == "[[":
            self.skip_block()
        elif token == "extern" and self.peek(1) is not None and self.peek(1).startswith('"'):
            self.at += 2
            if self.peek() == "{":
                self.block_scope(names)
        elif token == "namespace" or (token == "inline" and self.peek(1) == "namespace"):
            self.namespace(names)
        elif token == "template":
            self.at += 1
            if self.peek() != "<":
                self.skip_to_end()  # an explicit instantiation
                return
            self.skip_angles()
            if self.peek() == "requires":
                self.skip_constraint()
            if self.peek() != "template":
                self.entity(names, is_template=True)
        elif token in ("using", "typedef", "concept"):
            self.alias(names)
        else:
            self.entity(names)

    def skip_constraint(self):
        """Past "requires (...)" or "requires Concept<T> && ..."."""
        self.at += 1
        while True:
            if self.peek() == "(":
                self.skip_block()
            else:
                while self.peek() is not None and (self.peek().word or self.peek() == "::"):
                    self.at += 1
                    if self.peek() is not None and self.peek() == "<":
                        self.skip_angles()
                        break
            if self.peek() not in ("&&",):
                return
            self.at += 1

    def namespace(self, names):
        if self.peek() == "inline":
            self.at += 1
        self.at += 1
        inner = []
        while self.peek() not in ("{", "=", None):
            if self.peek() == "[[":
                self.skip_block()
                continue
            if self.peek().word:
                inner.append(str(self.peek()))
            self.at += 1
        if self.peek() == "=":
            self.skip_to_end()
            return
        self.block_scope((*names, *inner) if inner and names is not None else None)

    def alias(self, names):
        """using, typedef or concept. In a source they are its own: they have no linkage."""
        first = self.at
        if self.peek() == "typedef":
            self.skip_to_end()
            name = [token for token in self.tokens[first:self.at] if token.word][-1]
        else:
            name = self.peek(1)
            is_one = self.peek(2) in ("=", "[[")
            self.skip_to_end()
            if not is_one:
                return  # using namespace ..., using a::b
        if self.in_header:
            self.record(names, str(name), "alias", name)

    def entity(self, names, is_template=False):
        """A class, a function or a variable, defined or declared."""
        if self.peek() == "concept" or self.peek() == "using":
            self.alias(names)
            return
        first = self.at
        while self.peek() == "[[":
            self.skip_block()
        specifiers = set()
        key = None         # where class, struct, union or enum stands, if the declaration begins with it
        parameters = None  # where a function's parameters begin and end
        while True:
            token = self.peek()
            if token is None:
                raise self.confused("a declaration does not end")
            if token == "operator":
                parameters = self.operator()
                continue
            if token in ("static", "inline", "constexpr", "constinit", "const", "extern", "friend", "consteval"):
                specifiers.add(str(token))
            if token in CLASS_KEYS and key is None and parameters is None and all(
                    before in ("static", "inline", "constexpr", "const", "extern") or before == "enum"
                    for before in self.tokens[first:self.at]):
                key = self.at
            if token in (";", "=", "{"):
                break
            if token == ":" and key is not None and parameters is None:
                break  # of bases, or of an enum's type
            if token == ":" and parameters is not None:
                self.skip_initialisers()
                break
            if token == "(":
                begin = self.at
                self.skip_block()
                before = self.tokens[begin - 1] if begin > first else None
                if parameters is None and before is not None and (before.word or before == ">") and before not in (
                        "alignas", "__attribute__", "decltype", "noexcept", "explicit"):
                    parameters = (begin, self.at)
                continue
            if token in CLOSING:
                self.skip_block()
                continue
            if token == "<" and self.at > first and self.tokens[self.at - 1].word:
                self.skip_angles()
                continue
            self.at += 1
        self.end_of_entity(names, first, key, parameters, specifiers, is_template)

    def operator(self):
        """Past "operator" and its sign; where the parameters begin and end."""
        self.at += 1
        if self.peek() == "(" and self.peek(1) == ")":
            self.at += 2
        while self.peek() is not None and self.peek() != "(":
            if self.peek() in (";", "{"):
                raise self.confused("an operator without parameters")
            self.at += 1
        begin = self.at
        self.skip_block()
        return begin, self.at

    def skip_initialisers(self):
        """Past a constructor's members, up to its body."""
        self.at += 1
        while True:
            while self.peek() is not None and self.peek() not in ("(", "{"):
                if self.peek() == "<":
                    self.skip_angles()
                else:
                    self.at += 1
            if self.peek() is None:
                raise self.confused("a constructor without a body")
            self.skip_block()
            if self.peek() == "...":
                self.at += 1
            if self.peek() != ",":
                return
            self.at += 1

    def end_of_entity(self, names, first, key, parameters, specifiers, is_template):
        end = self.peek()
        if key is not None and parameters is None and end in ("{", ":"):
            name = self.class_name(key)
            while self.peek() != "{":
                if self.peek() == ";" or self.peek() is None:  # an enum that is declared only
                    self.skip_to_end()
                    return
                if self.peek() == "<":
                    self.skip_angles()
                elif self.peek() == "(":
                    self.skip_block()
                else:
                    self.at += 1
            self.skip_block()
            self.skip_to_end()
            if name:
                self.record(names, name, "type", self.tokens[key])
            return
        if parameters is not None and end == "{":
            self.skip_block()
            head = self.tokens[first:parameters[0]]
            if len(head) > 1 and "static" not in specifiers:  # not a macro, as TEST(...) {...}
                self.function(names, head, parameters, specifiers, is_template)
            return
        self.skip_to_end()
        if parameters is None and key is None and end in ("=", "{") and "extern" not in specifiers:
            self.variable(names, first, specifiers)

    def class_name(self, key):
        """The name of the class whose key stands there, with its arguments if it is a specialisation."""
        at = key + 1
        while self.tokens[at] in CLASS_KEYS:
            at += 1
        words = []
        depth = 0
        while self.tokens[at] not in ("{", ":") and not (self.tokens[at] == "final" and depth == 0):
            token = self.tokens[at]
            if token in ("[[", "(") and depth == 0:
                if token == "(" and words:
                    words.pop()  # alignas(...), and macros
                saved, self.at = self.at, at
                self.skip_block()
                at, self.at = self.at, saved
                continue
            depth += (token == "<") - (token == ">")
            words.append(str(token))
            at += 1
        return "".join(words)

    def function(self, names, head, parameters, specifiers, is_template):
        name = []
        at = len(head) - 1
        if "operator" in head:
            first = len(head) - 1 - head[::-1].index("operator")
            name = [str(token) for token in head[first:]]
            at = first - 1
        else:
            at = self.name_part(head, at, name)
        while at >= 0 and head[at] == "::":  # of a class, or of a namespace
            name.insert(0, "::")
            at = self.name_part(head, at - 1, name)
        inside = self.tokens[parameters[0] + 1:parameters[1] - 1]
        strong = not self.in_header and not is_template and not specifiers & {"inline", "constexpr", "consteval"}
        self.record(names, f"{''.join(name)}({', '.join(parameter_types(inside))})", "function", head[-1], strong)

    @staticmethod
    def name_part(head, at, name):
        """Puts the name that ends at `at` before `name`, with its arguments; where what is before it ends."""
        depth = 0
        while at >= 0:
            depth += (head[at] == ">") - (head[at] == "<")
            name.insert(0, str(head[at]))
            at -= 1
            if depth == 0:
                if name[0] == "<" and at >= 0:
                    name.insert(0, str(head[at]))
                    at -= 1
                break
        return at

    def variable(self, names, first, specifiers):
        own = "static" in specifiers or (specifiers & {"const", "constexpr"} and "inline" not in specifiers)
        if own and not self.in_header:
            return
        name = None
        depth = 0
        for token in self.tokens[first:]:
            if token in ("=", "{", ";", "[") and depth == 0:
                break
            depth += (token in ("<", "(")) - (token in (">", ")"))
            if token.word and depth == 0:
                name = token
            if token == "::" and depth == 0:
                name = None
        if name is not None:
            self.record(names, str(name), "variable", name, strong=not self.in_header and "inline" not in specifiers)


def parameter_types(tokens):
    """The types of a function's parameters, without their names and defaults."""
    types = []
    current = []
    depth = 0
    for token in [*tokens, None]:
        if token is None or (token == "," and depth == 0):
            types.append(type_of(current))
            current = []
            continue
        depth += (token in ("<", "(", "{", "[")) - (token in (">", ")", "}", "]"))
        current.append(token)
    return [text for text in types if text]


def type_of(tokens):
    depth = 0
    for place, token in enumerate(tokens):
        if token == "=" and depth == 0:
            tokens = tokens[:place]
            break
        depth += (token in ("<", "(", "{")) - (token in (">", ")", "}"))
    named = len(tokens) > 1 and tokens[-1].word and tokens[-1] not in TYPE_WORDS and tokens[-2] != "::" and any(
        token.word and token != "const" for token in tokens[:-1])
    return " ".join(tokens[:-1] if named else tokens)


def definitions_of(path, root):
    """What a file defines for others to see."""
    parser = Parser(path, tokens_of((root / path).read_text(errors="replace")))
    parser.scope(())
    if parser.peek() is not None:
        raise parser.confused("} closes nothing")
    return parser.definitions


def files(root):
    for folder in FOLDERS:
        if (root / folder).is_dir():
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in HEADERS | SOURCES and path.name not in OF_FORTRAN and path.is_file():
                    yield path.relative_to(root)


def check(root):
    """Returns the faults of a tree, one line each."""
    faults = []
    by_name = collections.defaultdict(dict)
    for path in files(root):
        try:
            for definition in definitions_of(path, root):
                # Of several in one file, the compiler takes care.
                by_name[definition.name].setdefault(path, definition)
        except Confused as confused:
            faults.append(f"{path}: tools/check_names.py cannot follow it: {confused}")
    for name, places in sorted(by_name.items()):
        if all(definition.strong for definition in places.values()):
            continue
        for path, definition in list(places.items())[1:]:
            other = next(iter(places.values()))
            faults.append(f"{path}:{definition.line}: {name} is defined in {other.path}:{other.line}, too: rename one, "
                          "share it, or put it into an anonymous namespace")
    return faults


# Trees of two files: what they define in namespace varve, and how many faults that is.
SELF_TEST = [
    ("src/a.h", "struct Options { int a = {}; };", "src/b.h", "struct Options { bool b; };", 1),
    ("src/a.h", "class [[nodiscard]] Thing final : public Base<int> { void f() {} };", "src/b.cpp",
     "struct Thing {};", 1),
    ("src/a.h", "enum class Outcome : uint8_t { one };", "tests/b.cpp", "struct Outcome { int i; } kept;", 1),
    ("src/a.h", "template <class T, int n = (3 > 2)>\nstruct Box { };", "src/b.h", "union Box {};", 1),
    ("src/a.h", "template <class T> requires (sizeof(T) > 1) && Plain<T> struct Box {};", "src/b.h",
     "class Box {};", 1),
    ("src/a.h", "template <> struct Box<int> {};", "src/b.h", "template <> struct Box<long> {};", 0),
    ("src/a.h", "struct Options;\nenum class E : int;", "src/b.h", "struct Options { };\nenum class E : int { e };", 0),
    ("src/a.cpp", "namespace { struct Part { int a; }; }", "src/b.cpp", "namespace {\nstruct Part {};\n}", 0),
    ("src/a.cpp", "struct Part { int a; };", "src/b.cpp", "struct Part { int a; };", 1),
    ("src/a.h", "namespace inner { struct Part {}; }", "src/b.h", "struct Part {};", 0),
    ("src/a.h", "namespace inner { struct Part {}; }", "src/b.h", "namespace inner { class Part {}; }", 1),
    ("src/a.h", "struct Outer { struct Part {}; };", "src/b.h", "struct Part {};", 0),
    ("src/a.h", "using Name = std::string;", "src/b.h", "struct Name {};", 1),
    ("src/a.cpp", "using Kind = A::Kind;", "src/b.cpp", "using Kind = B::Kind;", 0),
    ("src/a.h", "template <class T> concept Plain = sizeof(T) > 1;", "src/b.h",
     "template <class T>\nconcept Plain = true;", 1),
    ("src/a.h", "inline int size_of(const Thing& thing, int n = 3) { return 1; }", "src/b.cpp",
     "int size_of(const Thing& other, int) { return 2; }", 1),
    ("src/a.h", "inline int size_of(const Thing& thing) { return 1; }", "src/b.h",
     "inline int size_of(const Box<Thing>& thing) { return 2; }", 0),
    ("src/a.h", "template <class T> auto sum(T a, T b) -> decltype(a + b) { return a + b; }", "src/b.h",
     "template <class T>\nconstexpr T sum(T x, T y) { return x; }", 1),
    ("src/a.h", "inline bool operator<(const A& a, const A& b) { return true; }", "src/b.h",
     "inline bool operator<(const B& a, const B& b) { return true; }", 0),
    ("src/a.h", "inline bool operator<(const A& a, const A& b) { return true; }", "src/b.h",
     "inline bool operator<(const A& one, const A& two) { return false; }", 1),
    ("src/a.cpp", "static int help() { return 1; }", "src/b.cpp", "static int help() { return 2; }", 0),
    ("src/a.cpp", "A::A(int a) : Base<int>(a), b_{a} { if (a) {} }\nint A::f() const { return 1; }", "src/b.cpp",
     "B::B(int a) : b_{a} {}\nint B::f() const { return 1; }", 0),
    ("src/a.h", "inline int A::f() const { return 1; }", "src/b.h", "inline int A::f() const { return 2; }", 1),
    ("src/a.h", "constexpr int kMost = 3;", "src/b.h", "inline constexpr uint64_t kMost{4};", 1),
    ("src/a.cpp", "constexpr int kMost = 3;", "src/b.cpp", "const int kMost = 4;", 0),
    ("src/a.cpp", "std::atomic<int> count{0};", "src/b.cpp", "int count = 0;", 0),
    ("src/a.cpp", "inline std::atomic<int> count{0};", "src/b.cpp", "int count = 0;", 1),
    ("src/a.cpp", "Status mount(int a) { return 1; }", "src/b.cpp", "Status mount(int b) { return 2; }", 0),
    ("tests/a.cpp", "TEST(A, Does) { struct S {}; }\nTEST_P(B, Does) {}", "tests/b.cpp", "TEST(A, Does) { }", 0),
    ("src/a.cpp", "#if ONE\nint f(int a) {\n#else\nint f(long a) {\n#endif\nreturn 1; }", "src/b.cpp",
     "void g() { auto s = R\"x(struct { )x\"; char c = '{'; int n = 1'000; /* { */ } // {", 0),
    ("src/a.cpp", "struct S { } /* ; */;", "src/b.cpp", "#if 0\nstruct S {};\n#endif", 0),
    ("src/a.cpp", "void f() {", "src/b.cpp", "int g() { return 1; }", 1),
]


def self_test():
    """Every pair of files gives just its faults."""
    wrong = []
    for first, text, second, other_text, count in SELF_TEST:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in ((first, text), (second, other_text)):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(f"namespace varve {{\n{content}\n}}\n")
            found = check(root)
        if len(found) != count:
            wrong.append(f"self-test: {count} faults were to be found, not {found}, in:\n  {text}\n  {other_text}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description="Checks that a name in namespace varve means one thing.")
    parser.add_argument("--self-test", action="store_true", help="check the checker")
    parser.add_argument("--list", action="store_true", help="list all definitions")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    if arguments.list:
        for path in files(root):
            for definition in definitions_of(path, root):
                print(f"{definition.path}:{definition.line}: {definition.kind} {definition.name}")
        return 0
    faults = self_test() if arguments.self_test else check(root)
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
