"""What `fluidjax run` adds to an error that comes of the script's age: packages of its day, and Python 2."""

from __future__ import annotations

import re

from fluidjax.base.errors import explain

# What `pip install paddlepaddle` brought along, and Python itself once: module -> package. The extra `legacy` has all.
PADDLE_NEEDS = {
    "PIL": "pillow",
    "astor": "astor",
    "cv2": "opencv-python-headless",
    "decorator": "decorator",
    "distutils": "setuptools",
    "funcsigs": "funcsigs",
    "gast": "gast",
    "graphviz": "graphviz",
    "matplotlib": "matplotlib",
    "nltk": "nltk",
    "objgraph": "objgraph",
    "prettytable": "prettytable",
    "rarfile": "rarfile",
    "requests": "requests",
    "scipy": "scipy",
    "six": "six",
    "yaml": "pyyaml",
}

# Python 2's modules, built-in names and methods of dicts -> Python 3's.
MODULES = {
    "BaseHTTPServer": "http.server",
    "ConfigParser": "configparser",
    "HTMLParser": "html.parser",
    "Queue": "queue",
    "SocketServer": "socketserver",
    "StringIO": "io",
    "Tkinter": "tkinter",
    "__builtin__": "builtins",
    "cPickle": "pickle",
    "cStringIO": "io",
    "commands": "subprocess",
    "copy_reg": "copyreg",
    "httplib": "http.client",
    "thread": "_thread",
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
}
NAMES = {
    "basestring": "str",
    "execfile": "exec(open(path).read())",
    "file": "open",
    "long": "int",
    "raw_input": "input",
    "reduce": "functools.reduce",
    "reload": "importlib.reload",
    "unichr": "chr",
    "unicode": "str",
    "xrange": "range",
}
# What Python 3 says of statements of Python 2, and those of which it says no more than that they are invalid.
_SAID = re.compile("Missing parentheses in call to|multiple exception types must be|leading zeros in decimal")
_WRITTEN = re.compile(r"<>|`|\braise\s+[\w.]+\s*,|\bur['\"]")
METHODS = {"has_key": "in", "iteritems": "items", "iterkeys": "keys", "itervalues": "values"}


def advice(error: BaseException) -> str:
    """What to do about an error of an old script; "" if its age is not to blame."""
    if isinstance(error, SyntaxError):
        if not (isinstance(error, TabError) or _SAID.match(str(error.msg)) or _WRITTEN.search(error.text or "")):
            return ""
        return _of_python_2(f"{error.filename}, line {error.lineno}: this is not Python 3", "Python 3", str(error.msg))
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        return _package(name) if name in PADDLE_NEEDS else _renamed(f"the module {name!r}", MODULES.get(name))
    if isinstance(error, NameError):
        return _renamed(f"the name {error.name!r}", NAMES.get(error.name or ""))
    if isinstance(error, UnicodeDecodeError) and error.encoding == "ascii":
        return "fluidjax: " + explain(
            "these bytes are no ASCII text",
            "a pickle of Python 3, or a text in ASCII",
            f"byte {error.object[error.start]:#04x}",
            "read a pickle of Python 2 with pickle.load(file, encoding='latin1'), a text with open(path,"
            " encoding='utf-8')",
        )
    if isinstance(error, AttributeError) and isinstance(error.obj, dict):
        return _renamed(f"dict.{error.name}", METHODS.get(error.name or ""))
    return ""


def _package(name: str) -> str:
    return "fluidjax: " + explain(
        f"the script uses {name!r}, which was installed together with Paddle",
        f"the module {name}",
        "it is not installed here",
        f"pip install {PADDLE_NEEDS[name]}, or all that came with Paddle: pip install 'fluidjax[legacy]'",
    )


def _renamed(old: str, new: str | None) -> str:
    return _of_python_2(f"{old} is Python 2's", new, "a script written for Python 2") if new else ""


def _of_python_2(what: str, expected: str, received: str) -> str:
    return "fluidjax: " + explain(
        what,
        expected,
        received,
        "turn a script of Python 2 into Python 3 before it is run: `pip install fissix`, then `python -m fissix -w"
        " SCRIPT`; then look at its divisions, as 1 / 2 is 0.5 now",
    )
