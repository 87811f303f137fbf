package tagged

import "testing"

// Every operation has a row of the table, with a name that no other has.
func TestEveryOperationHasARow(t *testing.T) {
	names := make(map[string]Op)
	for o := Op(1); o < OpCount; o++ {
		e := &table[o]
		if e.run == nil {
			t.Errorf("operation %d has no row", o)
			continue
		}
		if o.View() == e.id.Valid() {
			t.Errorf("%s: runs an operation of package op is %t, and view is %t", o, e.id.Valid(), o.View())
		}
		if other, ok := names[o.String()]; ok {
			t.Errorf("operations %d and %d are both called %s", other, o, o)
		}
		names[o.String()] = o
	}
}
