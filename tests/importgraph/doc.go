// Package importgraph tests that the imports between the module's packages follow the table
// of floors in ARCHITECTURE.md. It reads the rules from the table.
//
// The package has no code but its tests.
package importgraph
