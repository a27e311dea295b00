"""One contender in a process of its own: told how many steps to run, it says how long they took."""

import importlib
import json
import sys
import time


def main():
    name, case = sys.argv[1], json.loads(sys.argv[2])
    out = sys.stdout
    sys.stdout = sys.stderr  # what frameworks print is not part of the answers
    say = lambda **answer: print(json.dumps(answer), file=out, flush=True)

    from benchmarks import memory
    from benchmarks.cases import Case
    from benchmarks.contenders import CONTENDERS

    contender = CONTENDERS[name]
    try:
        for module in contender.modules:
            importlib.import_module(module)
        base, began = memory.resident(), time.perf_counter()
        step, parameters = contender.make(Case(**case))
    except ImportError as error:
        say(missing=str(error))
        return
    built = time.perf_counter()
    step(1)
    first = time.perf_counter()
    step(1)  # what the second run still compiles or allocates
    say(build_s=built - began, first_step_s=first - built, parameters=parameters, base_gib=base)
    for line in sys.stdin:
        begin, cpu = time.perf_counter(), time.process_time()
        step(int(line))
        cpu = time.process_time() - cpu
        seconds = time.perf_counter() - begin
        say(seconds=seconds, cpu_seconds=cpu, peak_gib=memory.peak())


if __name__ == "__main__":
    main()
