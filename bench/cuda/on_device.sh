#!/usr/bin/env bash
# Runs what ./run pack cuda has packed, on a machine with a CUDA device that may have no network, no compiler and no
# Python: tests, then NVIDIA's checkers, the bench, and variants of schedules.
# Usage: ./on_device.sh [RESULTS [STEPS]]: a folder, "results" unless told; all steps unless told, for a machine that is
# lent for minutes at a time: device targets tests memcheck racecheck initcheck bench bench_table bench_again
# bench_again_table peers unpack variants.
# Each step is limited in time, and goes on where the one before failed.
# Exit status: 0 all that could run is right; 1 something is wrong; 3 there is no device.
set -uo pipefail

results=$(realpath -m -- "${1:-results}")
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" || exit 1
mkdir -p "$results" || exit 1
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
wanted=("${@:2}")
failed=()

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" | tee -a "$results/summary.txt"; }

# step NAME SECONDS COMMAND...: its output goes into a file of that name.
step() {
    local name=$1 limit=$2 status=0
    shift 2
    ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $name "* ]] || return
    timeout "$limit" "$@" >"$results/$name.txt" 2>&1 || status=$?
    case $status in
    0) say "$name: done" ;;
    124) say "$name: cut off after $limit s" && failed+=("$name") ;;
    *) say "$name: exit status $status" && failed+=("$name") ;;
    esac
    return "$status"
}

tests=(bin/halyard_gpu_tests '[cuda_sm80],[gpu][cuda]')
: >"$results/summary.txt"
if command -v nvidia-smi >/dev/null; then
    step device 30 nvidia-smi -q -d CLOCK,POWER,PERFORMANCE
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv -lms 500 \
        >"$results/clocks.csv" 2>&1 &
    sampler=$!
    trap 'kill "$sampler" 2>/dev/null' EXIT
else
    say "there is no nvidia-smi, so clocks are not noted"
fi
step targets 60 bin/halyard list
if ! bin/halyard_bench_gpu device >"$results/why_not.txt" 2>&1; then
    say "no device: $(cat "$results/why_not.txt")"
    exit 3
fi

step tests 300 "${tests[@]}"
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        # Asking the driver about memory that is not its own fails by intention.
        step "$tool" 300 compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 "${tests[@]}"
    done
else
    say "there is no compute-sanitizer, so nothing ran under it"
fi
# What is to be timed was written where there is Python; ./run bench cuda --answers prints the table of what comes out.
for bench in bench bench_again; do
    step "$bench" 540 bash -c 'bin/halyard_bench_gpu <requests.jsonl'
    if command -v python3 >/dev/null && [[ -f $results/$bench.txt ]]; then
        step "${bench}_table" 60 python3 cuda_rounds.py --answers "$results/$bench.txt"
    fi
done
if command -v python3 >/dev/null && python3 -c 'import torch' 2>/dev/null; then
    step peers 300 python3 peers_cuda.py
else
    say "there is no python3 with PyTorch, so peers are not timed"
fi

# The tuner needs Halide, a compiler and Python. Here variants that it would make take turns, as they were made before.
time_variants() {
    local round variant name tokens calls
    for round in 1 2 3 4 5; do
        for variant in variants/*; do
            name=$(basename -- "$variant")
            printf 'round %d %s' "$round" "$name"
            while read -r tokens calls; do
                printf '{"do":"prepare","kernel":"%s","tokens":%d,"heads":40,"head_dim":128,"rotary_dim":128}\n' \
                    "${name%%.*}" "$tokens"
                printf '{"do":"round","calls":[[0,%d]]}\n' "$calls"
            done <<<$'1 1000\n64 1000\n4096 100' | "$variant" | grep -v subjects | tr '\n' ' ' | sed 's/^/ /'
            echo
        done
    done
}
if [[ -f variants.tar.xz ]]; then
    if step unpack 120 tar xJf variants.tar.xz; then
        step variants 420 bash -c "$(declare -f time_variants); time_variants"
    fi
fi
if ((${#failed[@]} > 0)); then
    say "failed: ${failed[*]}"
    exit 1
fi
say "all is done"
