#!/bin/sh
# for other harnesses: all hidden tests or nothing. Deployments of graftline grade by its in_box/scoring.py.
card=src/df/cards/df_003_mosswyrm.rs
logs=${LOGS_DIR:-/logs/verifier}
mkdir -p "$logs"
cat "${TESTS_DIR:-/tests}/df_003_mosswyrm_eval.rs" >> "$card"
if cargo test --offline -- df_003_mosswyrm::eval_tests::; then score=1.0; else score=0.0; fi
echo "{\"score\": $score}" > "$logs/reward.json"
