#!/bin/sh
set -eu
cp "${SOLUTION_DIR:-/solution}/df_003_mosswyrm.rs" "src/df/cards/df_003_mosswyrm.rs"
