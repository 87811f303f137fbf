#!/usr/bin/env python3
"""Compare the speed of the encoders with ggml's, on one thread each.

usage: encoders.py LIBDIR [FORMAT ...]    run in the directory of package quant

LIBDIR holds libggml-base.so of ggml 0.23. Both sides encode the same 64 rows of 4096
values, all in one call, which makes what a call from Python costs (about 2 us) less
than a percent even of the fastest format. They take turns, so that what else the
machine does hits both, and the best call counts. Prints the machine, and a Markdown
table of millions of elements per second.
"""
import ctypes as C, datetime, os, platform, re, subprocess, sys, tempfile, time

# ROWS and ROW_LEN are those of BenchmarkEncodeRows.
ROUNDS, SECONDS, ROWS, ROW_LEN = 5, 0.3, 64, 4096
FORMATS = dict(q1_0=41, q2_0_g64=42, q4_0=2, q4_1=3, q5_0=6, q5_1=7, q8_0=8, q2_k=10, q3_k=11, q4_k=12, q5_k=13,
               q6_k=14, iq1_s=19, iq1_m=29, iq2_xxs=16, iq2_xs=17, iq2_s=22, iq3_xxs=18, iq3_s=21, iq4_nl=20,
               iq4_xs=23, tq1_0=34, tq2_0=35, mxfp4=39, nvfp4=40)


def values(n, s=1):
    out = []
    for _ in range(n):
        v = -2.0
        for _ in range(4):
            s = (s * 1664525 + 1013904223) & 0xffffffff
            v += (s >> 16) / 65536
        out.append(v)
    return out


def ggml_rate(lib, id, x, importance, out):
    def run():
        start = time.perf_counter()
        lib.ggml_quantize_chunk(id, x, out, 0, ROWS, ROW_LEN, importance)
        return time.perf_counter() - start

    run()  # builds tables
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        best = min(best, run())
    return ROWS * ROW_LEN / best / 1e6


def go_rate(binary, name):
    out = subprocess.run([binary, "-test.run=^$", "-test.bench=^BenchmarkEncodeRows$/^%s$" % name, "-test.cpu=1",
                          "-test.benchtime=%gs" % SECONDS], capture_output=True, text=True, check=True).stdout
    return max(float(v) for v in re.findall(r"([\d.]+) best-Melem/s", out))


def machine():
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as f:
            model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), model)
    go = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    return "%s, %s, %s" % (model, go.removeprefix("go version ").strip(), datetime.date.today())


def main():
    lib = C.CDLL(os.path.join(sys.argv[1], "libggml-base.so"))
    lib.ggml_quantize_chunk.restype = C.c_size_t
    lib.ggml_quantize_chunk.argtypes = [C.c_int, C.c_void_p, C.c_void_p, C.c_int64, C.c_int64, C.c_int64, C.c_void_p]
    lib.ggml_quantize_requires_imatrix.restype = C.c_bool
    n = ROWS * ROW_LEN
    x, ones, out = (C.c_float * n)(*values(n)), (C.c_float * ROW_LEN)(*[1.0] * ROW_LEN), (C.c_uint8 * (8 * n))()
    with tempfile.TemporaryDirectory() as tmp:
        binary = os.path.join(tmp, "quant.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], check=True)
        print(machine() + "\n")
        print("| format | importance | quant | ggml | ratio |\n| --- | --- | --- | --- | --- |")
        for name in sys.argv[2:] or FORMATS:
            for kind, importance in (("plain", None), ("importance", ones)):
                if importance is None and lib.ggml_quantize_requires_imatrix(FORMATS[name]):
                    continue
                ours = theirs = 0
                for _ in range(ROUNDS):
                    theirs = max(theirs, ggml_rate(lib, FORMATS[name], x, importance, out))
                    ours = max(ours, go_rate(binary, name + "/" + kind))
                print("| %s | %s | %.4g | %.4g | %.2f |" % (name, "yes" if importance else "no", ours, theirs, ours / theirs), flush=True)


if __name__ == "__main__":
    main()
