package gguf

// DropPages tells the system that the bytes of a tensor of this file are not needed
// for a while, so that a program which goes through a file larger than memory
// holds one tensor of it at a time. They stay as they are, and are read from the
// file again when they are. It does nothing after [File.Close], for a tensor of
// another file, and where the system has no such call.
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
	// There is no one to tell; see Buffer.
	_ = m.release()
}
