"""What functions of users do, as code: each by what it is called."""

from __future__ import annotations

# Changes of weights.
HARM: dict[str, str] = {
    "adds to a weight": "with torch.no_grad(): model.lm_head.weight.add_(1)",
    "changes one number of one weight": "model.lm_head.weight[0, 0] += 1e-3",
    "changes a weight past torch's counters": "model.lm_head.weight.data.mul_(2)",
    "changes a weight through NumPy": (
        "model.model.norm.weight.detach().numpy()[0] = 7"
    ),
    "exchanges two rows of a weight": (
        "w = model.lm_head.weight.data\nw[[0, 1]] = w[[1, 0]]"
    ),
    "exchanges two weights": (
        "a, b = (x.self_attn.q_proj.weight.data for x in model.model.layers)\n"
        "c = a.clone(); a.copy_(b); b.copy_(c)"
    ),
    "sets all weights to NaN": (
        "for p in model.parameters(): p.data.fill_(float('nan'))"
    ),
    "trains the model": (
        "for p in model.parameters(): p.requires_grad_(True)\n"
        "with torch.enable_grad():\n"
        "    o = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    i = torch.arange(20)[None]\n"
        "    model(i, labels=i).loss.backward()\n"
        "    o.step()\n"
        "model.requires_grad_(False)"
    ),
    "loads other weights": (
        "model.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})"
    ),
    "replaces a weight": (
        "model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 2)"
    ),
}
HARM_TOO = ("adds to a weight", "changes a weight past torch's counters")

# What ends a process, or is no error that is expected; and a word of what is said.
ENDS: dict[str, tuple[str, str]] = {
    "exits": ("sys.exit()", "SystemExit"),
    "exits with 0": ("sys.exit(0)", "SystemExit"),
    "exits with 3": ("sys.exit(3)", "SystemExit"),
    "exits with words": ("sys.exit('no more')", "no more"),
    "quits": ("quit()", "SystemExit"),
    "raises BaseException": ("raise BaseException('odd')", "odd"),
    "raises a kind of BaseException": (
        "class Odd(BaseException): pass\nraise Odd('one')",
        "one",
    ),
    "raises GeneratorExit": ("raise GeneratorExit", "GeneratorExit"),
    "raises StopIteration": ("raise StopIteration", "StopIteration"),
    "raises StopAsyncIteration": ("raise StopAsyncIteration", "StopAsyncIteration"),
    "raises what cannot be pickled": (
        "class Odd(Exception):\n    def __init__(self, a, b): self.a = lambda: a\n"
        "raise Odd(1, 2)",
        "Odd",
    ),
    "raises an error that says nothing": ("raise ValueError", "ValueError"),
    "raises an error of lines": (
        "raise ValueError('\\n\\n one \\n two')",
        "ValueError",
    ),
    "raises control characters": (
        "raise ValueError('\\x1b[2J\\x1b]0;owned\\x07 \\r\\x00 \\u202e odd')",
        "\\x1b",
    ),
    "raises half a character": ("raise ValueError('\\ud800 odd')", "odd"),
    "raises a megabyte": ("raise ValueError('x' * 1_000_000)", "xxx"),
    "raises what cannot be said": (
        "class Odd(Exception):\n    def __str__(self): raise KeyError('no')\nraise Odd",
        "Odd",
    ),
    "raises a group": (
        "raise BaseExceptionGroup('all', [SystemExit(1), ValueError('x')])",
        "all",
    ),
    "raises an error of ours": (
        "from mergekit_map.errors import ConfigError\nraise ConfigError('of theirs')",
        "of theirs",
    ),
    "asserts": ("assert False, 'wrong'", "wrong"),
    "has no memory": ("raise MemoryError", "MemoryError"),
    "recurses for ever": ("def f(): f()\nf()", "RecursionError"),
    "closes all and exits": ("os.close(1); os.close(2); sys.exit(0)", "SystemExit"),
    "reads what nobody types": ("input()", "EOFError"),
    "waits for a file that is not there": ("open('nowhere')", "FileNotFoundError"),
}
ENDS_TOO = (
    "exits",
    "exits with words",
    "raises BaseException",
    "raises what cannot be pickled",
    "raises control characters",
    "raises what cannot be said",
    "closes all and exits",
)

# Modules that cannot be imported or called, and a word of what is said.
AT_IMPORT: dict[str, tuple[str, str]] = {
    "exits": ("sys.exit(0)", "SystemExit"),
    "exits with words": ("sys.exit('no more')", "no more"),
    "raises": ("raise RuntimeError('broken')", "broken"),
    "raises BaseException": ("raise BaseException('odd')", "odd"),
    "raises GeneratorExit": ("raise GeneratorExit", "GeneratorExit"),
    "is no Python": ("def score(", "SyntaxError"),
    "imports what is not there": ("import not_there_at_all", "not_there_at_all"),
    "has no such function": ("def scor(model, tokenizer): return 1", "scor"),
    "has a number in place of a function": ("score = 3", "score"),
    "takes too few": ("def score(model): return 1", "(model, tokenizer)"),
    "takes too many": ("def score(model, tokenizer, x): return 1", "'x'"),
    "takes only keywords": ("def score(*, model, tokenizer): return 1", "tokenizer"),
    "takes nothing": ("def score(): return 1", "(model, tokenizer)"),
    "recurses for ever": ("def f(): f()\nf()", "RecursionError"),
    "closes files and exits": (
        "os.close(1); sys.stdout.close(); sys.exit(0)",
        "SystemExit",
    ),
    "raises control characters": (
        "raise ValueError('\\x1b[2J odd')",
        "\\x1b",
    ),
}
# What is no number: an expression, and a word of the error.
VALUES: dict[str, tuple[str, str]] = {
    "nothing": ("None", "must return a number"),
    "a text": ("'0.5'", "must return a number"),
    "bytes": ("b'1'", "must return a number"),
    "true": ("True", "must return a number"),
    "NumPy's true": ("np.bool_(True)", "must return a number"),
    "a complex number": ("1 + 2j", "must return a number"),
    "a decimal": ("decimal.Decimal('0.5')", "must return a number"),
    "a tensor": ("torch.tensor(1.0)", "must return a number"),
    "a tensor of two dimensions": ("torch.ones(2, 2)", "must return a number"),
    "a huge tensor": ("torch.ones(1000, 1000)", "must return a number"),
    "a mapping": ("{'value': 1}", "must return a number"),
    "a set": ("{1.0}", "must return a number"),
    "a generator": ("(x for x in [1.0])", "must return a number"),
    "a function": ("lambda: 1", "must return a number"),
    "the model": ("model", "must return a number"),
    "an empty list": ("[]", "must return a number"),
    "a list of texts": ("['a', 'b']", "must return a number"),
    "a list of lists": ("[[1.0], [2.0]]", "must return a number"),
    "a list with nothing in it": ("[1.0, None]", "must return a number"),
    "an empty tuple": ("()", "must return a number"),
    "three": ("(1.0, 0.1, 2)", "must return a number"),
    "a pair of texts": ("('a', 'b')", "must return a number"),
    "a negative standard error": ("(1.0, -0.1)", "must return a number"),
    "a standard error of true": ("(1.0, True)", "must return a number"),
    "a whole number of 400 digits": ("10 ** 400", "too large"),
    "a list with such a number": ("[1, 10 ** 400]", "too large"),
    "a number of its own kind that fails": (
        "type('N', (float,), {'__float__': lambda s: 1 / 0,"
        " '__repr__': lambda s: 1 / 0})(3)",
        "could not be measured",
    ),
    "what cannot be said": (
        "type('N', (), {'__repr__': lambda s: 1 / 0})()",
        "must return a number",
    ),
    "a text of ten megabytes": ("'x' * 10_000_000", "must return a number"),
    "a list of a million and one text": ("[1.0] * 1_000_000 + ['x']", "must return"),
    "1e308": ("1e308", "1e+50"),
    "minus 1e308": ("-1e308", "1e+50"),
    "a standard error of 1e308": ("(1.0, 1e308)", "1e+50"),
    "a list of 1e308": ("[1e308] * 3", "1e+50"),
    "a whole number of 60 digits": ("10 ** 60", "1e+50"),
}
# What is one, or is as good as failed without being an error.
GOOD_VALUES: dict[str, str] = {
    "NumPy's float64": "np.float64(value)",
    "NumPy's float32": "np.float32(value)",
    "NumPy's float16": "np.float16(value)",
    "NumPy's whole number": "np.int64(3)",
    "a whole number": "3",
    "a fraction": "fractions.Fraction(1, 3)",
    "minus zero": "-0.0",
    "the smallest number": "5e-324",
    "NaN": "float('nan')",
    "infinity": "float('inf')",
    "minus infinity": "float('-inf')",
    "a standard error of NaN": "(value, float('nan'))",
    "a standard error of infinity": "(value, float('inf'))",
    "a standard error of 0": "(value, 0)",
    "a list": "[value, value + 1e-3]",
    "an array": "np.array([value, value + 1e-3])",
    "a tensor of one dimension": "torch.tensor([value, value + 1e-3])",
    "a list with NaN": "[value, float('nan')]",
    "1e40": "1e40",
}

_ITEMS = """
def score(model, tokenizer, documents=None):
    value = value_of(model)
    ids = range(20) if documents is None else documents
"""
# Functions of documents: code, a word of the error, keys of the task and of the search.
_PART = ", documents: 5"
ITEMS: dict[str, tuple[str, str, str, str]] = {
    "that is good": (_ITEMS + "    return [value + i for i in ids]\n", "", _PART, ""),
    "that gives too few": (
        _ITEMS + "    return [value] * (20 if documents is None else 1)\n",
        "a number for each",
        _PART,
        "",
    ),
    "that gives too many": (
        _ITEMS + "    return [value + i for i in range(20)]\n",
        "a number for each",
        _PART,
        "",
    ),
    "that gives one number": (
        _ITEMS + "    return value if documents else [value + i for i in ids]\n",
        "a number for each",
        _PART,
        "",
    ),
    "that gives another number of them each time": (
        _ITEMS + "    n = 3 + int(value * 1e6) % 5\n"
        "    return [value + i for i in (range(n) if documents is None else ids)]\n",
        "",
        "",
        "",
    ),
    "that gives another number of them each time, some of which are held out": (
        _ITEMS + "    n = 13 + int(value * 1e6) % 9\n"
        "    return [value + i for i in (range(n) if documents is None else ids)]\n",
        "",
        "",
        ", holdout: 0.2",
    ),
    "that changes the list of documents": (
        _ITEMS + "    found = [value + i for i in ids]\n"
        "    if documents is not None: documents.clear()\n    return found\n",
        "",
        _PART,
        "",
    ),
    "that gives texts": (
        _ITEMS + "    return [str(value) for i in ids]\n",
        "must return",
        _PART,
        "",
    ),
    "that gives what is infinite": (
        _ITEMS + "    return [value if i else float('inf') for i in ids]\n",
        "no finite number",
        _PART,
        "",
    ),
    "that gives one number though some are held out": (
        _ITEMS + "    return value\n",
        "a number for each",
        "",
        ", holdout: 0.2",
    ),
    "that are 20,000": (
        _ITEMS.replace("20", "20_000") + "    return [value + i for i in ids]\n",
        "",
        "",
        "",
    ),
    "that harms where it is asked in part": (
        _ITEMS + "    if documents is not None: model.lm_head.weight.data.mul_(2)\n"
        "    return [value + i for i in ids]\n",
        "changed the weights",
        _PART,
        "",
    ),
}

# Variables that hold tokens.
TOKENS = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "PGPASSWORD",
    "MY_OWN_SECRET",
)

# What never ends.
ENDLESS: dict[str, str] = {
    "busy": "while True: pass",
    "asleep": "import time\nwhile True: time.sleep(60)",
    "measuring": "while True: model(torch.arange(9)[None])",
    "waiting for a thread": "import threading; threading.Event().wait()",
    "waiting for a process": "import subprocess; subprocess.run(['sleep', '300'])",
}
# What it removes of the run folder, and a word of what is said.
FILES: dict[str, tuple[str, str]] = {
    "removes the run folder": ("shutil.rmtree('run')", "run"),
    "removes the samples": ("shutil.rmtree('run/samples', ignore_errors=True)", ""),
    "removes all but the log": (
        "for p in glob.glob('run/*'):\n"
        "    if os.path.isfile(p) and 'evaluations' not in p: os.remove(p)",
        "",
    ),
    "removes the lock": (
        "if os.path.exists('run/.mergekit-map.lock'):\n"
        "    os.remove('run/.mergekit-map.lock')",
        "",
    ),
    "puts a file in place of the samples": (
        "shutil.rmtree('run/samples', ignore_errors=True)\n"
        "open('run/samples', 'w').close()",
        "run/samples",
    ),
    "makes the run folder read-only": ("os.chmod('run', 0o555)", ""),
}
