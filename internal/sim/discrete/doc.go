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
//     sources and download destinations are accessed when the work executes, so
//     that reusing them too early gives wrong bytes. Only WaitFor orders two queues.
//     The race detector reports a missing WaitFor, because the workers share no lock
//     and no counter.
//   - Completion that is late, in batches, and in any order across queues. Within
//     a queue it is monotonic. [Options.Chaos] turns seeded delays on. With
//     [Device.Hold] and [Device.Step] a test controls completion.
//   - Failure. Failed work kills its queue: everything after the last reported
//     point fails with one [accel.WindowError], which may cover more than the failed
//     operation. A lost device fails everything on every queue.
//   - Misuse, recorded as hazards: memory that is freed while work uses it, used after
//     it was freed, or addressed out of range; pinned host memory freed during a
//     transfer; two goroutines that submit to one queue concurrently.
//
// The package does not model speed, driver threads and contexts, captured steps, unified
// memory, fragmentation of device memory, or device kernels. A seed repeats the delays but
// not the schedule, which depends on the Go scheduler. Early reuse of host memory that is
// not pinned is not recorded as a hazard, because the device does not see when the Go heap
// or a mapping frees it.
//
// The package is empty in a build without the tag accel.
package discrete
