#!/bin/sh
set -eu
cp "${SOLUTION_DIR:-/solution}/df_005_stonecub.rs" "src/df/cards/df_005_stonecub.rs"
