// Package importgraph tests that the module's packages import each other as the table of
// floors in ARCHITECTURE.md says. It reads the table, so that the document is the rule.
//
// The package has no code but its tests.
package importgraph
