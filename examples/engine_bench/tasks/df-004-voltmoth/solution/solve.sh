#!/bin/sh
set -eu
cp "${SOLUTION_DIR:-/solution}/df_004_voltmoth.rs" "src/df/cards/df_004_voltmoth.rs"
