#!/bin/sh
# Put your machines into machine.yaml and machine2.yaml first.
cd "$(dirname "$0")" || exit
execute_batch batch_script.sh --machines machine.yaml machine2.yaml --no-gpu-required
