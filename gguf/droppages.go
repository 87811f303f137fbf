package gguf

// DropPages tells the system that the bytes of a tensor of this file are not needed for a
// while, so that a program that reads a file larger than memory holds one tensor of it at
// a time. The bytes stay valid; the next access reads them from the file again. DropPages
// does nothing after [File.Close], for a tensor of another file, and on systems without
// such a call.
func (f *File) DropPages(t TensorInfo) {
	own, ok := f.own(t)
	if !ok || own.Size == 0 || f.closed.Load() {
		return
	}
	m := f.parts[own.Part]
	if m.cold == nil || !m.retain() {
		return
	}
	m.cold(int(own.Offset), int(own.Size))
	// The error is ignored as in Buffer.
	_ = m.release()
}
