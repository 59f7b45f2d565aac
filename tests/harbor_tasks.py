"""Small Harbor tasks of our own that use the format in its breadth: what each wants, with a solution that earns 1."""

from collections.abc import Mapping

BASE = "FROM tiny:1\n"
GRADE = '#!/bin/bash\nset -uo pipefail\n{check} && reward=1 || reward=0\necho "$reward" > /logs/verifier/reward.txt\n'


def a_task(
    check: str, solution: str, toml: str = "", dockerfile: str = "WORKDIR /work/place\n", **more: str
) -> dict[str, str]:
    """Return the files of a task: done where `check`, an expression of bash, holds."""
    return {
        "task.toml": f'version = "1.0"\n{toml}',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": f"{BASE}{dockerfile}",
        "tests/test.sh": GRADE.format(check=check),
        "solution/solve.sh": f"#!/bin/bash\n{solution}\n",
        **more,
    }


TASKS: Mapping[str, Mapping[str, str]] = {
    "bash-and-workdir": a_task('[[ "$(cat /work/place/a.txt)" == ab ]]', "x=(a b); printf '%s' \"${x[@]}\" > a.txt"),
    "what-tests-bring": a_task(
        "diff -q /tests/wanted.txt /work/place/made.txt",
        "cp /solution/made.txt made.txt",
        **{"tests/wanted.txt": "42\n", "solution/made.txt": "42\n"},
    ),
    "outside-the-workdir": a_task("[[ -f /srv/data/made ]]", "mkdir -p /srv/data && touch /srv/data/made"),
    "what-runs-on": a_task("kill -0 $(cat /srv/service.pid)", "mkdir -p /srv; sleep 300 & echo $! > /srv/service.pid"),
    "variables": a_task(
        '[[ "$GIVEN $GRADED $(cat said)" == "here too solved" ]]',
        'echo "$HOW" > said',
        '[environment]\nenv = { GIVEN = "here" }\n[verifier]\nenv = { GRADED = "${NOBODY:-too}" }\n'
        '[solution]\nenv = { HOW = "solved" }\n',
    ),
    "image": a_task(
        '[[ "$(cat built) $COLOUR $(cat copied.pem)" == "built by bash green a key" && -f made ]]',
        "touch made",
        dockerfile='ENV COLOUR="green"\nARG WHO=bash\nWORKDIR /work\nRUN mkdir place && \\\n    # why\n    echo "built by $WHO" \\\n'
        "    > place/built\nWORKDIR place\nCOPY copied.pem ./\n",
        **{"environment/copied.pem": "a key\n"},
    ),
    "separate": a_task(
        "[[ -f /work/place/kept.txt && ! -e /work/place/lost.txt && -f /logs/artifacts/report ]]",
        "touch kept.txt lost.txt /logs/artifacts/report",
        'artifacts = ["kept.txt"]\n[verifier]\nenvironment_mode = "separate"\n',
    ),
    "tests-with-an-image": {
        **a_task(
            "[[ -f /work/out/a.txt && ! -e /work/out/b.tmp && -f /tests/own ]]",
            "mkdir -p /work/out && touch /work/out/a.txt /work/out/b.tmp",
            'artifacts = [{ source = "/work/out", exclude = ["*.tmp"] }]\n[verifier]\nenvironment_mode = "separate"\n',
        ),
        "tests/Dockerfile": f"{BASE}COPY test.sh /tests/test.sh\nRUN chmod +x /tests/test.sh && touch /tests/own\nWORKDIR /work/place\n",
    },
    "no-network": a_task(
        "[[ -f made && ! $(cut -d: -f1 /proc/net/dev | tr -d ' ' | grep -v '|' | grep -v '^lo$') ]]",
        "touch made",
        '[environment]\nnetwork_mode = "no-network"\n',
    ),
    "objectives": {
        **a_task("true", "touch made"),
        "tests/test.sh": '#!/bin/sh\n[ -f made ] && r=1 || r=0\necho "{\\"reward\\": $r, \\"files\\": $r}" > /logs/verifier/reward.json\n',
    },
}
