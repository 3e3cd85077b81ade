"""What functions of users do, as code: each by what it is called."""

from __future__ import annotations

# Another model than the merge: code, and a word of the error.
HARM: dict[str, tuple[str, str]] = {
    "adds to a weight": (
        "with torch.no_grad(): model.lm_head.weight.add_(1)",
        "lm_head",
    ),
    "changes one number of one weight": (
        "with torch.no_grad(): model.lm_head.weight[0, 0] += 1e-3",
        "lm_head.weight",
    ),
    "changes a weight past torch's counters": (
        "model.lm_head.weight.data.mul_(2)",
        "lm_head.weight",
    ),
    "changes a weight through NumPy": (
        "model.model.norm.weight.detach().numpy()[0] = 7",
        "model.norm.weight",
    ),
    "turns the sign of a weight": (
        "model.model.layers[0].mlp.up_proj.weight.data.neg_()",
        "up_proj.weight",
    ),
    "exchanges two rows of a weight": (
        "w = model.lm_head.weight.data\nw[[0, 1]] = w[[1, 0]]",
        "lm_head.weight",
    ),
    "exchanges two columns of a weight": (
        "w = model.lm_head.weight.data\nw[:, [0, 1]] = w[:, [1, 0]]",
        "lm_head.weight",
    ),
    "exchanges two weights": (
        "a, b = (x.self_attn.q_proj.weight.data for x in model.model.layers)\n"
        "c = a.clone(); a.copy_(b); b.copy_(c)",
        "q_proj.weight",
    ),
    "sets all weights to NaN": (
        "for p in model.parameters(): p.data.fill_(float('nan'))",
        "weight",
    ),
    "trains the model": (
        "for p in model.parameters(): p.requires_grad_(True)\n"
        "with torch.enable_grad():\n"
        "    o = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    i = torch.arange(20)[None]\n"
        "    model(i, labels=i).loss.backward()\n"
        "    o.step()",
        "weight",
    ),
    "prunes a weight": (
        "import torch.nn.utils.prune as p\n"
        "p.random_unstructured(model.lm_head, 'weight', amount=0.5)",
        "lm_head",
    ),
    "loads other weights": (
        "model.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})",
        "weight",
    ),
    "replaces a weight": (
        "model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 2)",
        "lm_head",
    ),
    "replaces what a weight holds": (
        "model.lm_head.weight.data = model.lm_head.weight.data * 2",
        "lm_head.weight",
    ),
    "gives memory of a weight back": (
        "model.lm_head.weight.untyped_storage().resize_(0)",
        "resiz",
    ),
    "removes a weight": ("del model.lm_head.weight", "weight of lm_head"),
    "converts to float16": ("model.half()", "weight"),
    "converts to float64": ("model.double()", "weight"),
    "converts to bfloat16 one part": (
        "model.model.layers[1].to(torch.bfloat16)",
        "layers.1",
    ),
    "moves it to a device that holds nothing": ("model.to('meta')", "weight"),
    "resizes the embeddings": ("model.resize_token_embeddings(500)", "embed_tokens"),
    "ties the embeddings": (
        "model.lm_head.weight = model.model.embed_tokens.weight",
        "lm_head",
    ),
    "replaces a module": (
        "model.lm_head = torch.nn.Linear(32, 415, bias=False)",
        "lm_head",
    ),
    "removes a layer": (
        "model.model.layers = torch.nn.ModuleList(list(model.model.layers)[:1])",
        "layers",
    ),
    "removes a layer in place": ("del model.model.layers[1]", "1 of model.layers"),
    "exchanges two layers": (
        "l = model.model.layers\nl[0], l[1] = l[1], l[0]",
        "model.layers",
    ),
    "wraps a module": (
        "model.lm_head = torch.nn.Sequential(model.lm_head, torch.nn.Identity())",
        "lm_head",
    ),
    "quantises it": (
        "import warnings; warnings.simplefilter('ignore')\n"
        "for m in model.modules():\n"
        "    if isinstance(m, torch.nn.Linear):\n"
        "        m.weight.data = (m.weight.data * 8).round() / 8",
        "weight",
    ),
    "leaves a hook": (
        "model.lm_head.register_forward_hook(lambda m, i, o: o * 2)",
        "hooks of lm_head",
    ),
    "leaves a hook before a module": (
        "model.lm_head.register_forward_pre_hook(lambda m, i: (i[0] * 2,))",
        "hooks of lm_head",
    ),
    "leaves a hook that takes keywords": (
        "model.register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True)",
        "hooks of the model",
    ),
    "leaves a hook of derivatives": (
        "model.lm_head.register_full_backward_hook(lambda m, i, o: None)",
        "hooks of lm_head",
    ),
    "patches forward of a module": (
        "f = model.lm_head.forward\nmodel.lm_head.forward = lambda x: f(x) * 2",
        "forward of lm_head",
    ),
    "patches forward of the model": (
        "f = model.forward\n"
        "def forward(*a, **k):\n"
        "    o = f(*a, **k); o.logits = o.logits * 2; return o\n"
        "model.forward = forward",
        "forward of the model",
    ),
    "patches the code of a class": (
        "c = type(model.model.norm); f = c.forward\n"
        "c.forward = lambda self, x: f(self, x) * 2",
        "code of LlamaRMSNorm",
    ),
    "makes a module of another kind": (
        "class Other(torch.nn.Linear):\n"
        "    def forward(self, x): return super().forward(x) * 2\n"
        "model.lm_head.__class__ = Other",
        "kind of lm_head",
    ),
    "changes a buffer in place": (
        "model.model.rotary_emb.inv_freq.mul_(3)",
        "inv_freq",
    ),
    "adds a bias": (
        "model.lm_head.bias = torch.nn.Parameter(torch.arange(415.))",
        "bias of lm_head",
    ),
    "drops a module": ("model.model.norm = torch.nn.Identity()", "norm"),
}
HARM_TOO = (
    "adds to a weight",
    "changes a weight past torch's counters",
    "converts to float16",
    "leaves a hook",
    "resizes the embeddings",
    "changes a buffer in place",
)

# How it is used: code, and a word of what is said.
SETTINGS: dict[str, tuple[str, str]] = {
    "leaves training mode on": ("model.train()", "training mode"),
    "leaves one module training": ("model.model.layers[0].train()", "training mode"),
    "wants derivatives": ("model.requires_grad_(True)", "requires_grad"),
    "changes the configuration": (
        "model.config.rms_norm_eps = 1.0; model.config.use_cache = False",
        "config.use_cache",
    ),
    "replaces the configuration": (
        "import copy\nmodel.config = copy.deepcopy(model.config)\n"
        "model.config.use_cache = False",
        "config",
    ),
    "changes a list of the configuration": (
        "model.config.architectures.append('Other')",
        "config.architectures",
    ),
    "changes how is attended": (
        "model.set_attn_implementation('eager')",
        "_attn_implementation",
    ),
    "changes what is generated": (
        "model.generation_config.max_length = 3\n"
        "model.generation_config.do_sample = True",
        "generation_config.max_length",
    ),
    "changes a number of a module": (
        "model.model.norm.variance_epsilon = 1.0",
        "variance_epsilon",
    ),
    "changes how a layer scales": (
        "model.model.layers[0].self_attn.scaling *= 2",
        "scaling",
    ),
    "changes the folder": ("os.chdir('/')", "working directory"),
    "removes the folder that it is in": (
        "import tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
        "working directory",
    ),
    "changes the default dtype": (
        "torch.set_default_dtype(torch.float64)",
        "default dtype",
    ),
    "changes the number of threads": (
        "torch.set_num_threads(3)",
        "number of threads",
    ),
    "changes the precision": (
        "torch.set_float32_matmul_precision('medium')",
        "matmul precision",
    ),
    "wants deterministic algorithms": (
        "torch.use_deterministic_algorithms(True)",
        "deterministic",
    ),
    "leaves autocast on": (
        "torch.set_autocast_dtype('cpu', torch.bfloat16)\n"
        "torch.set_autocast_enabled('cpu', True)",
        "autocast",
    ),
    "drops the smallest numbers": ("torch.set_flush_denormal(True)", "smallest"),
    "turns ways to attend off": (
        "torch.backends.cuda.enable_flash_sdp(False)\n"
        "torch.backends.cuda.enable_mem_efficient_sdp(False)",
        "attend",
    ),
    "turns a backend off": ("torch.backends.mkldnn.enabled = False", "backends"),
    "lets NumPy raise": (
        "import numpy; numpy.seterr(all='raise')",
        "NumPy's errors",
    ),
    "leaves a hook of all modules": (
        "torch.nn.modules.module.register_module_forward_hook(\n"
        "    lambda m, i, o: o * 2 if isinstance(m, torch.nn.Linear) else None)",
        "hooks of all modules",
    ),
}

# What is put back without a word.
PROCESS: dict[str, str] = {
    "wants gradients for ever": "torch.set_grad_enabled(True)",
    "leaves gradients behind": (
        "model.requires_grad_(True)\n"
        "for p in model.parameters(): p.grad = torch.ones_like(p)\n"
        "model.requires_grad_(False)"
    ),
    "seeds everything": (
        "import random, numpy\n"
        "random.seed(1); numpy.random.seed(1); torch.manual_seed(1)"
    ),
    "draws a lot": "torch.rand(1000); import random; random.random()",
    "changes its tokenizer": (
        "tokenizer.padding_side = 'left'; tokenizer.truncation_side = 'left'\n"
        "tokenizer.add_tokens(['the', 'quick', 'return'])\n"
        "tokenizer.add_special_tokens({'pad_token': '<other>'})"
    ),
    "breaks its tokenizer": ("tokenizer._tokenizer = None; tokenizer.encode = None"),
    "generates": (
        "model.generate(torch.arange(5)[None], max_new_tokens=3, do_sample=True)"
    ),
    "measures a copy that it changes": (
        "import copy; other = copy.deepcopy(model); other.half(); other.lm_head = None"
    ),
    "changes a weight and puts it back": (
        "w = model.lm_head.weight.data; known = w.clone(); w.mul_(2); w.copy_(known)"
    ),
    "hooks and unhooks": (
        "h = model.lm_head.register_forward_hook(lambda m, i, o: o * 2)\n"
        "model(torch.arange(5)[None]); h.remove()"
    ),
    "converts and comes back": "model.train(); model.eval()",
    "changes the environment": (
        "os.environ['MERGEKIT_MAP_HOME'] = '/nowhere'\n"
        "os.environ['TMPDIR'] = '/nowhere'\n"
        "os.environ.pop('HOME', None); os.environ['PATH'] = ''"
    ),
    "empties the environment": "os.environ.clear()",
    "catches signals": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, lambda *a: None)"
    ),
    "sets an alarm": "import signal; signal.setitimer(signal.ITIMER_REAL, 0.05)",
    "changes umask": "os.umask(0o777)",
    "closes standard output": "sys.stdout.close()",
    "closes standard error": "sys.stderr.close()",
    "closes the first standard output": (
        "sys.__stdout__.close(); sys.__stderr__.close()"
    ),
    "closes file 1": "os.close(1)",
    "closes file 2": "os.close(2)",
    "closes files 0, 1 and 2": "os.close(0); os.close(1); os.close(2)",
    "sends file 1 elsewhere": (
        "f = os.open('elsewhere', os.O_WRONLY | os.O_CREAT)\n"
        "os.dup2(f, 1); os.dup2(f, 2)"
    ),
    "replaces standard output": (
        "import io; sys.stdout = io.StringIO(); sys.stderr = None"
    ),
    "removes standard output": "del sys.stdout; del sys.stderr",
    "detaches standard output": "sys.stdout.detach()",
    "makes warnings errors": (
        "import warnings; warnings.simplefilter('error'); warnings.showwarning = None"
    ),
    "logs all": (
        "import logging\nlogging.basicConfig(level=0, force=True)\n"
        "logging.getLogger().setLevel(0)"
    ),
    "logs nothing": (
        "import logging; logging.disable(); logging.root.handlers.clear()"
    ),
    "replaces print and open": (
        "import builtins; builtins.print = None; builtins.open = None"
    ),
    "prints megabytes": (
        "print('x' * 2_000_000); print('y' * 2_000_000, file=sys.stderr)"
    ),
    "traces": "sys.settrace(lambda *a: None)",
    "collects no garbage": "import gc; gc.disable()",
    "recurses": "def f(): f()\ntry: f()\nexcept RecursionError: pass",
    "warns": "import warnings; warnings.warn('watch out')",
    "freezes parameters": "model.requires_grad_(False); model.zero_grad()",
}
SETTINGS_TOO = (
    "leaves training mode on",
    "changes the default dtype",
    "changes the folder",
    "closes files 0, 1 and 2",
    "closes standard output",
    "catches signals",
    "changes its tokenizer",
)

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
# Modules that change things while they are imported.
IMPORTED_BESIDE: dict[str, str] = {
    "changes the default dtype": "torch.set_default_dtype(torch.float64)",
    "changes the folder": "os.chdir('/')",
    "closes files": "os.close(1); os.close(2)",
    "closes standard output": "sys.stdout.close()",
    "catches signals": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "seeds": "torch.manual_seed(7)",
    "turns gradients off": "torch.set_grad_enabled(False)",
    "empties the path": "sys.path.clear()",
    "forks": "if os.fork() == 0: pass",
    "prints": "print('hello'); print('there', file=sys.stderr)",
    "makes warnings errors": "import warnings; warnings.simplefilter('error')",
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
        "lm_head.weight",
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

# What is left running.
LEFT: dict[str, str] = {
    "leaves a thread": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=[600], daemon=True).start()"
    ),
    "leaves a process": "import subprocess; subprocess.Popen(['sleep', '5'])",
    "forks": "if os.fork() == 0: pass",
    "forks, and the copy fails": "if os.fork() == 0: raise RuntimeError('copy')",
    "forks, and the copy exits": "if os.fork() == 0: sys.exit(3)",
    "forks ten times": "for _ in range(10):\n    if os.fork() == 0: break",
    "uses processes": (
        "import multiprocessing as m\n"
        "p = m.get_context('fork').Process(target=print, args=['there'])\n"
        "p.start(); p.join()"
    ),
    "uses a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "p = ThreadPoolExecutor(2); p.submit(print, 'there').result()"
    ),
    "leaves files open": "x = [open('/dev/null') for _ in range(50)]",
}
# What is left running, and changes the model; others may fail, but are never wrong.
LATER: dict[str, str] = {
    f"leaves a thread that changes weights {when}": (
        "import threading, time\n"
        "def harm():\n"
        f"    time.sleep({seconds})\n"
        "    model.lm_head.weight.data.mul_(1.5)\n"
        "threading.Thread(target=harm, daemon=True).start()"
    )
    for when, seconds in {
        "at once": 0,
        "soon": 0.003,
        "later": 0.01,
        "much later": 0.03,
    }.items()
}
# What never ends.
ENDLESS: dict[str, str] = {
    "busy": "while True: pass",
    "asleep": "import time\nwhile True: time.sleep(60)",
    "measuring": "while True: model(torch.arange(9)[None])",
    "waiting for a thread": "import threading; threading.Event().wait()",
    "waiting for a process": "import subprocess; subprocess.run(['sleep', '300'])",
}
# What would keep an interpreter from its end, or say another exit code.
AT_THE_END: dict[str, str] = {
    "leaves a thread that never ends": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=[10_000]).start()"
    ),
    "leaves a pool whose work never ends": (
        "from concurrent.futures import ThreadPoolExecutor\nimport time\n"
        "ThreadPoolExecutor(1).submit(time.sleep, 10_000)"
    ),
    "leaves a process that never ends": (
        "import subprocess\nsubprocess.Popen(['sleep', '20'], stdout=-3, stderr=-3)"
    ),
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
