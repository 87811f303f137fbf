#!/usr/bin/env python3
"""Compare the speed of single operations: products of f32 matrices with OpenBLAS, and products by one row of a weight
with the speed of reading memory.

usage: bench.py CACHE    make bench-ops calls it

CACHE has the programs bin/ops and bin/floors, and OpenBLAS in openblas. docs/benchmarks.md describes the variables
that choose what is measured.

All programs stay open and take turns within one run. Between its turns a program waits for a line of input. OpenBLAS
runs once for each kind of processor that it has kernels for and this machine runs, and the fastest of them counts.
"""
import json, os, statistics, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import common

# The threads of OpenBLAS poll for some milliseconds after their work, and would slow down the next turn.
REST = 0.05
CORES = "Haswell SkylakeX Cooperlake Sapphirerapids"
FORMATS = "q4_0 q8_0 q4_k q5_k q6_k iq4_nl iq4_xs mxfp4 tq2_0 f16 bf16 f32"
# The bytes of a weight of which a row is multiplied: more than the caches hold.
WEIGHT, WIDTH = 256 << 20, 4096


class Program:
    """A program that answers requests, one line each."""

    def __init__(self, command, **variables):
        self.process = subprocess.Popen(command, env=dict(os.environ, **variables), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def line(self):
        text = self.process.stdout.readline()
        return json.loads(text) if text else None

    def ask(self, **request):
        time.sleep(REST)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.line()
        if answer is None:
            sys.exit("%s ended" % self.process.args[0])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def open_blas(cache):
    """Returns OpenBLAS's programs by the name of their kernels. If OpenBLAS does not accept a kind of processor, it
    chooses kernels itself."""
    programs = {}
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "openblas.py")
    for core in [None] + common.words("CORES", CORES):
        forced = {"OPENBLAS_CORETYPE": core} if core else {}
        program = Program([sys.executable, script, os.path.join(cache, "openblas")], **forced)
        about = program.line()
        if about is None:
            print("OpenBLAS: %s ends at once" % core)
            continue
        print("OpenBLAS: %s: kernels of %s; %s" % ("asked for " + core if core else "its own choice", about["core"], about["config"]))
        if about["core"] in programs:
            program.close()
        else:
            programs[about["core"]] = program
    return programs


def gemm(ops, blas, threads, turns, seconds):
    sizes = common.numbers("SIZES", "256 512 1024 2048")
    skinny = common.numbers("ROWS", "1 4 16")
    shapes = [(m, n, n) for n in sizes for m in [r for r in skinny if r < n] + [n]]
    print("\nproducts of m rows of k values with n rows of k values, f32; GFLOP/s, medians of %d turns\n" % turns)
    common.head("m", "n", "k", "threads", "OpenBLAS", "its kernels", "fucina", "ratio")
    for m, n, k in shapes:
        for t in threads:
            rates = {name: [] for name in ["fucina", *blas]}
            for _ in range(turns):
                for name, program in [("fucina", ops), *blas.items()]:
                    answer = program.ask(m=m, n=n, k=k, threads=t, seconds=seconds)
                    rates[name].append(2e-9 * m * n * k / answer["seconds"])
            medians = {name: statistics.median(values) for name, values in rates.items()}
            best = max(blas, key=medians.get)
            common.row(m, n, k, t, "%.1f" % medians[best], best, "%.1f" % medians["fucina"],
                       "%.2f" % (medians["fucina"] / medians[best]))


def matvec(ops, floors, threads, turns, seconds):
    print("\nproducts of one row with a weight of %d MB; GB/s of weights, medians of %d turns\n" % (WEIGHT >> 20, turns))
    common.head("format", "threads", "read", "fucina", "ratio")
    for format in common.words("FORMATS", FORMATS):
        for t in threads:
            rates, reads = [], []
            for _ in range(turns):
                floors.probe()
                reads.append(floors.read[t][-1])
                answer = ops.ask(m=1, bytes=WEIGHT, k=WIDTH, threads=t, seconds=seconds, format=format)
                rates.append(1e-9 * answer["bytes"] / answer["seconds"])
            rate, read = statistics.median(rates), statistics.median(reads)
            common.row(format, t, "%.1f" % read, "%.1f" % rate, "%.2f" % (rate / read))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cache = sys.argv[1]
    short = common.setting("SHORT", "0") == "1"
    threads = common.numbers("THREADS", "1 2")
    turns = int(common.setting("REPETITIONS", "3" if short else "5"))
    seconds = 0.05 if short else 0.2
    common.describe()
    if common.setting("PEAKS", "0" if short else "1") == "1":
        common.peaks()
    what = common.words("WHAT", "gemm matvec")
    ops = Program([os.path.join(cache, "bin", "ops")])
    floors = common.Floors(os.path.join(cache, "bin", "floors"), threads)
    floors.probe()
    if "gemm" in what:
        blas = open_blas(cache)
        gemm(ops, blas, threads, turns, seconds)
        for program in blas.values():
            program.close()
    if "matvec" in what:
        matvec(ops, floors, threads, turns, seconds)
    ops.close()
    print()
    floors.tell()
    common.load()


main()
