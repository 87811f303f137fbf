"""What the benchmarks that compare with other programs share: settings, the machine, its floors."""
import json, os, platform, re, statistics, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GO = os.environ.get("GO", "go")


def setting(name, default):
    """The value of a variable of the command line or the environment. An empty one counts as not set."""
    return os.environ.get(name) or default


def words(name, default):
    return setting(name, default).replace(",", " ").split()


def numbers(name, default):
    try:
        return [int(w) for w in words(name, default)]
    except ValueError:
        sys.exit("%s=%s: want numbers" % (name, setting(name, default)))


def processor():
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe():
    """Prints the machine, and what else it does: the figures hold for a machine that is otherwise idle."""
    go = subprocess.run([GO, "version"], capture_output=True, text=True, check=True).stdout
    print("machine: %s, %d processors; %s" % (processor(), len(os.sched_getaffinity(0)), go.removeprefix("go version ").strip()))
    print("FUCINA_CPU: %s" % setting("FUCINA_CPU", "the best of this processor"))
    load()


def load():
    stolen = ""
    with open("/proc/stat") as f:
        ticks = [int(v) for v in f.readline().split()[1:]]
    if len(ticks) > 7:
        stolen = "; stolen from this virtual machine since its start: %.1f%%" % (100 * ticks[7] / sum(ticks))
    print("%s, load %.2f %.2f %.2f%s" % ((time.strftime("%Y-%m-%d %H:%M"),) + os.getloadavg() + (stolen,)), flush=True)


class Floors:
    """The floors of the machine, measured again and again during a run by the program floors."""

    def __init__(self, program, threads):
        self.command = [program] + [str(t) for t in threads]
        self.read, self.copy = {t: [] for t in threads}, {t: [] for t in threads}

    def probe(self):
        out = subprocess.run(self.command, capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            f = json.loads(line)
            self.read[f["threads"]].append(f["read"])
            self.copy[f["threads"]].append(f["copy"])

    def tell(self):
        for t in self.read:
            print("floors, %d threads: read %s GB/s, copy %s GB/s" % (t, spread(self.read[t]), spread(self.copy[t])))


def peaks():
    """Prints the benchmarks called BenchmarkPeak..., which measure the most multiply-adds of an instruction."""
    out = subprocess.run([GO, "test", "-run=^$", "-bench=^BenchmarkPeak", "-benchtime=0.2s", "./kernels/..."],
                         cwd=ROOT, capture_output=True, text=True).stdout
    for line in re.findall(r"^Benchmark(Peak.*)$", out, re.M):
        print("peak: " + " ".join(line.split()))


def spread(values):
    return "%.1f (%.1f to %.1f)" % (statistics.median(values), min(values), max(values))


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def head(*cells):
    row(*cells)
    row(*["---"] * len(cells))
