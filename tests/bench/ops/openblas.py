#!/usr/bin/env python3
"""Products of f32 matrices by OpenBLAS.

usage: openblas.py DIRECTORY    DIRECTORY has libopenblas.so.0 in openblas-pthread, and the libraries that it needs

The first line of output names OpenBLAS's build and the kernels that it chose, which OPENBLAS_CORETYPE forces. Each
line of input is a request of main.go in this directory without a format, and is answered in the same way.
"""
import ctypes as C, json, os, random, sys, time

ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112


# Some random values, which every matrix repeats.
RANDOM = random.Random(1)
VALUES = (C.c_float * 4096)(*[RANDOM.random() - 0.5 for _ in range(4096)])


def matrix(size):
    return (C.c_float * size).from_buffer(bytearray((bytes(VALUES) * (size // len(VALUES) + 1))[:4 * size]))


def main():
    directory = sys.argv[1]
    for name in ("libquadmath.so.0", "libgfortran.so.5"):
        C.CDLL(os.path.join(directory, name), mode=C.RTLD_GLOBAL)
    blas = C.CDLL(os.path.join(directory, "openblas-pthread", "libopenblas.so.0"))
    blas.openblas_get_config.restype = blas.openblas_get_corename.restype = C.c_char_p
    f32 = C.POINTER(C.c_float)
    blas.cblas_sgemm.restype = None
    blas.cblas_sgemm.argtypes = [C.c_int] * 6 + [C.c_float, f32, C.c_int, f32, C.c_int, C.c_float, f32, C.c_int]
    print(json.dumps({"core": blas.openblas_get_corename().decode(), "config": blas.openblas_get_config().decode()}), flush=True)
    for line in sys.stdin:
        r = json.loads(line)
        m, n, k = r["m"], r["n"], r["k"]
        x, w, y = (matrix(size) for size in (m * k, n * k, m * n))
        blas.openblas_set_num_threads(r["threads"])

        def call():
            start = time.perf_counter()
            blas.cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1, x, k, w, k, 0, y, n)
            return time.perf_counter() - start

        call()
        fastest, end = call(), time.perf_counter() + r["seconds"]
        while time.perf_counter() < end:
            fastest = min(fastest, call())
        print(json.dumps({"seconds": fastest}), flush=True)


main()
