#!/bin/sh
set -eu
cp "${SOLUTION_DIR:-/solution}/df_002_tidecrab.rs" "src/df/cards/df_002_tidecrab.rs"
