"""Twenty small tasks that a language model is measured by, each with code on which a general rule holds as well.

The changes are those that every code base sees: renamed functions, arguments added, dropped and swapped, idioms. A rule of
one pattern with its rewrite solves each of them.
"""

from dataclasses import dataclass

from graftline.astgrep.binding import Language
from graftline.rollouts.task import Task


@dataclass(frozen=True)
class QualityTask:
    """A task, and other code that a rule for it should change as well."""

    name: str
    language: Language
    instruction: str
    before: str
    wanted: str
    other_before: str
    other_wanted: str

    @property
    def task(self) -> Task:
        """As teachers are given it."""
        return Task(
            id=f"quality:{self.name}",
            dataset="quality",
            language=self.language,
            instruction=self.instruction,
            before=self.before,
            target=self.wanted,
            license="Apache-2.0",
            group="quality",
            origin=f"benchmarks/teacher_tasks.py {self.name}",
        )


def _task(name: str, language: Language, instruction: str, *texts: str) -> QualityTask:
    return QualityTask(name, language, instruction, *texts)


QUALITY_TASKS = (
    _task(
        "rename_call",
        "python",
        "Rename the function `fetch_data` to `load_data`.",
        "a = fetch_data(url)\nb = fetch_data(make(u), 3)\n",
        "a = load_data(url)\nb = load_data(make(u), 3)\n",
        "z = fetch_data()\n",
        "z = load_data()\n",
    ),
    _task(
        "rename_method",
        "python",
        "Use `assertEqual` instead of the deprecated `assertEquals`.",
        "self.assertEquals(a, b)\nself.assertEquals(f(x), 3)\n",
        "self.assertEqual(a, b)\nself.assertEqual(f(x), 3)\n",
        "self.assertEquals(1, g(2))\n",
        "self.assertEqual(1, g(2))\n",
    ),
    _task(
        "add_kwarg",
        "python",
        "Open files with `encoding='utf-8'`.",
        "f = open(path)\ng = open(os.path.join(d, 'x'))\n",
        "f = open(path, encoding='utf-8')\ng = open(os.path.join(d, 'x'), encoding='utf-8')\n",
        "h = open(name)\n",
        "h = open(name, encoding='utf-8')\n",
    ),
    _task(
        "swap_args",
        "python",
        "`copy_file` takes the destination first: swap its two arguments.",
        "copy_file(src, dst)\ncopy_file('a.txt', out)\n",
        "copy_file(dst, src)\ncopy_file(out, 'a.txt')\n",
        "copy_file(p, q)\n",
        "copy_file(q, p)\n",
    ),
    _task(
        "drop_kwarg",
        "python",
        "Drop the argument `debug=True` from calls of `run`.",
        "run(cmd, debug=True)\nrun(build(x), debug=True)\n",
        "run(cmd)\nrun(build(x))\n",
        "run(y, debug=True)\n",
        "run(y)\n",
    ),
    _task(
        "print_to_log",
        "python",
        "Log with `logger.info` instead of printing.",
        "print('start')\nprint(compute(x))\n",
        "logger.info('start')\nlogger.info(compute(x))\n",
        "print(z)\n",
        "logger.info(z)\n",
    ),
    _task(
        "wrap_call",
        "python",
        "Wrap every call of `json.loads` in a call of `checked`.",
        "x = json.loads(s)\ny = json.loads(read(p))\n",
        "x = checked(json.loads(s))\ny = checked(json.loads(read(p)))\n",
        "z = json.loads(t)\n",
        "z = checked(json.loads(t))\n",
    ),
    _task(
        "np_float",
        "python",
        "`np.float` is gone: use the built-in `float`.",
        "a = np.float(3)\nb = np.float(x)\n",
        "a = float(3)\nb = float(x)\n",
        "c = np.float(n)\n",
        "c = float(n)\n",
    ),
    _task(
        "len_zero",
        "python",
        "Test for emptiness with `not` instead of comparing the length with zero.",
        "if len(items) == 0:\n    stop()\nif len(a.b) == 0:\n    go()\n",
        "if not items:\n    stop()\nif not a.b:\n    go()\n",
        "if len(q) == 0:\n    r()\n",
        "if not q:\n    r()\n",
    ),
    _task(
        "is_none",
        "python",
        "Compare with None by identity, not by equality.",
        "if x == None:\n    a()\nif obj.val == None:\n    b()\n",
        "if x is None:\n    a()\nif obj.val is None:\n    b()\n",
        "if y == None:\n    c()\n",
        "if y is None:\n    c()\n",
    ),
    _task(
        "isinstance",
        "python",
        "Use `isinstance` instead of comparing the type with `==`.",
        "if type(x) == int:\n    a()\nif type(y.z) == str:\n    b()\n",
        "if isinstance(x, int):\n    a()\nif isinstance(y.z, str):\n    b()\n",
        "if type(q) == list:\n    c()\n",
        "if isinstance(q, list):\n    c()\n",
    ),
    _task(
        "guard",
        "python",
        "Call `send` only if its argument is not None: put each call under such an `if`.",
        "send(msg)\nsend(reply)\n",
        "if msg is not None:\n    send(msg)\nif reply is not None:\n    send(reply)\n",
        "send(event)\n",
        "if event is not None:\n    send(event)\n",
    ),
    _task(
        "get_default",
        "python",
        "Look the key up by `get` with a default instead of the conditional expression.",
        "x = d['k'] if 'k' in d else 0\n",
        "x = d.get('k', 0)\n",
        "y = cfg['port'] if 'port' in cfg else 80\n",
        "y = cfg.get('port', 80)\n",
    ),
    _task(
        "var_let",
        "javascript",
        "Declare variables with `let` instead of `var`.",
        "var a = 1\nvar b = f(x)\n",
        "let a = 1\nlet b = f(x)\n",
        "var c = [1]\n",
        "let c = [1]\n",
    ),
    _task(
        "console_log",
        "javascript",
        "Log with `logger.debug` instead of `console.log`.",
        "console.log(a)\nconsole.log(f(b))\n",
        "logger.debug(a)\nlogger.debug(f(b))\n",
        "console.log('x')\n",
        "logger.debug('x')\n",
    ),
    _task(
        "strict_eq",
        "javascript",
        "Compare with `===` instead of `==`.",
        "if (a == b) { f() }\nif (x.y == 3) { g() }\n",
        "if (a === b) { f() }\nif (x.y === 3) { g() }\n",
        "if (p == q) { h() }\n",
        "if (p === q) { h() }\n",
    ),
    _task(
        "new_buffer",
        "javascript",
        "`new Buffer(...)` is deprecated: use `Buffer.from(...)`.",
        "const a = new Buffer(s)\nconst b = new Buffer(x, 'hex')\n",
        "const a = Buffer.from(s)\nconst b = Buffer.from(x, 'hex')\n",
        "const c = new Buffer(d)\n",
        "const c = Buffer.from(d)\n",
    ),
    _task(
        "promise",
        "javascript",
        "Promises have no `done`: use `then`.",
        "getUser(id).done(show)\ngetUser(7).done(render)\n",
        "getUser(id).then(show)\ngetUser(7).then(render)\n",
        "getUser(k).done(cb)\n",
        "getUser(k).then(cb)\n",
    ),
    _task(
        "println",
        "java",
        "Log with `log.info` instead of `System.out.println`.",
        'class A { void f() { System.out.println(x); System.out.println("hi"); } }\n',
        'class A { void f() { log.info(x); log.info("hi"); } }\n',
        "class B { void g() { System.out.println(y); } }\n",
        "class B { void g() { log.info(y); } }\n",
    ),
    _task(
        "is_empty",
        "java",
        "Use `isEmpty()` instead of comparing the size with zero.",
        "class A { boolean f() { return list.size() == 0 || other.size() == 0; } }\n",
        "class A { boolean f() { return list.isEmpty() || other.isEmpty(); } }\n",
        "class B { boolean g() { return q.size() == 0; } }\n",
        "class B { boolean g() { return q.isEmpty(); } }\n",
    ),
)
