"""The process of one contender: reads numbers of steps, and answers how long they took."""

import importlib
import json
import sys
import time


def main():
    name, case = sys.argv[1], json.loads(sys.argv[2])
    out = sys.stdout
    sys.stdout = sys.stderr  # keeps what frameworks print out of the answers
    answer = lambda **values: print(json.dumps(values), file=out, flush=True)

    from benchmarks import memory
    from benchmarks.cases import Case
    from benchmarks.contenders import CONTENDERS

    contender = CONTENDERS[name]
    try:
        for module in contender.modules:
            importlib.import_module(module)
        base, start = memory.resident(), time.perf_counter()
        step, parameters = contender.make(Case(**case))
    except ImportError as error:
        answer(missing=str(error))
        return
    built = time.perf_counter()
    step(1)
    first = time.perf_counter()
    step(1)  # the second step may still compile or allocate
    answer(build_s=built - start, first_step_s=first - built, parameters=parameters, base_gib=base)
    for line in sys.stdin:
        begin, cpu = time.perf_counter(), time.process_time()
        step(int(line))
        cpu = time.process_time() - cpu
        seconds = time.perf_counter() - begin
        peaks = {"peak_gib": memory.peak(), "gpu_gib": memory.peak_on_gpu()}
        answer(seconds=seconds, cpu_seconds=cpu, **peaks)


if __name__ == "__main__":
    main()
