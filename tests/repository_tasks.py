"""A change of a small repository as a task: `fetch` becomes `get` in three files, and another file has nothing to do with it."""

from typing import Any

from graftline.rollouts.repository_task import RepositoryTask

BEFORE = "def run(client, urls):\n    for url in urls:\n        client.fetch(url, timeout=5)\n    return {}\n"
TESTS = {
    "kind": "pytest",
    "files": {
        "test_run.py": (
            "from a import run\n\n\nclass Client:\n    def __init__(self):\n        self.urls = []\n\n"
            "    def get(self, url, timeout):\n        self.urls.append(url)\n\n\n"
            "def test_run():\n    client = Client()\n    assert run(client, ['x']) == 0\n    assert client.urls == ['x']\n"
        )
    },
    "expected": ["test_run.py::test_run"],
    "trusts": "report",
}


def after_of(text: str) -> str:
    return text.replace("client.fetch(", "client.get(")


def repository_task(**changes: Any) -> RepositoryTask:
    texts = {name: BEFORE.format(number) for number, name in enumerate(("a.py", "src/b.py", "src/c.py"))}
    values = {
        "id": "acme/shop@2",
        "repo": "acme/shop",
        "parent": "1",
        "commit": "2",
        "license": "MIT",
        "language": "python",
        "instruction": "Call get in place of fetch.",
        "instruction_source": "commit",
        "answerable": True,
        "answerable_by": "reader",
        "files": [{"path": path, "before": text, "after": after_of(text)} for path, text in texts.items()],
        "untouched": [{"path": "other.py", "text": "def stop(dog):\n    dog.fetch('stick', timeout=1)\n"}],
        "untouched_total": 1,
        "places": 3,
        "kinds": 1,
        "score": 1.0,
        "origin": "repo",
    }
    return RepositoryTask.model_validate({**values, **changes})
