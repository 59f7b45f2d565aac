#!/bin/sh
# Makes the repository `shop` beside this file: three commits, two of which make the same small change.
set -e
cd "$(dirname "$0")"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Ann GIT_AUTHOR_EMAIL= GIT_AUTHOR_DATE=2024-05-01T12:00:00Z
export GIT_COMMITTER_NAME=Ann GIT_COMMITTER_EMAIL= GIT_COMMITTER_DATE=2024-05-01T12:00:00Z
rm -rf shop
git init -q -b main shop
cd shop
printf 'def load(url):\n    return client.get(url, timeout=5)\n' > load.py
printf 'client.get(HOME, timeout=1)\n' > ping.py
git add --all && git commit -q -m "Load by the client"
printf 'def load(url):\n    return client.fetch(url, timeout=5)\n' > load.py
git commit -q -a -m "Load by fetch"
printf 'client.fetch(HOME, timeout=1)\n' > ping.py
git commit -q -a -m "Ping by fetch, too"
