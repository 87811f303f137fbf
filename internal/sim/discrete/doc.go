// Package discrete is a device with its own memory, in plain Go. It implements
// [provider.Device] so that everything around the kernels of a real device
// (fences, coherence, pools, placement, failure) is tested without one. The
// kernels are the CPU reference kernels, run on the device's bytes.
//
// What it models:
//
//   - Memory that the host cannot address. Allocations have a name and no
//     address; bytes come and go by Upload and Download only. New memory, freed
//     memory, workspaces and the outputs of failed work are filled with a pattern
//     that is NaN as f32, f16 and bf16, and a negative number as an integer.
//   - Queues that run behind the host. Each has one worker and a ring that holds
//     arguments by value; a full ring blocks the submitter. Operands, upload
//     sources and download destinations are touched when the work executes, so
//     that whoever reuses them too early gets wrong bytes. Nothing orders two
//     queues but WaitFor: under the race detector a missing one is also a report,
//     because the workers share no lock and no counter.
//   - Completion that is late, in batches, and in any order across queues. Within
//     a queue it is monotonic. [Options.Chaos] turns seeded delays on, [Device.Hold]
//     and [Device.Step] put a test in charge.
//   - Failure. Failed work kills its queue: everything after the last reported
//     point fails with one [accel.WindowError], which may be wider than the
//     operation at fault. A lost device fails everything on every queue.
//   - Misuse, recorded as hazards: memory that is freed while work uses it, used
//     after it was freed, addressed out of range; pinned host memory freed under a
//     transfer; two goroutines that submit to one queue at once.
//
// What it does not model: speed, driver threads and contexts, captured steps,
// unified memory, fragmentation of device memory, and kernels of its own. Seeds
// make the delays repeatable, not the schedule: that is up to the Go scheduler.
// The contents of host memory that is not pinned are taken as they are: it is not
// known when the Go heap or a mapping gives it back.
//
// The package has no content in a build without the tag accel.
package discrete
