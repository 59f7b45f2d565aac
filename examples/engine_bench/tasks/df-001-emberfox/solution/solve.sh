#!/bin/sh
set -eu
cp "${SOLUTION_DIR:-/solution}/df_001_emberfox.rs" "src/df/cards/df_001_emberfox.rs"
