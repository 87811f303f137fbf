// Package page does the bookkeeping of a paged cache of keys and values: which page of the
// cache's buffers holds which rows of which sequence. It knows numbers only. The package above
// it owns the buffers, and performs the copies that this package asks for.
//
// A row is what a layer keeps of one token. A page has [Rows] rows. The layers of a network
// fall into groups that need the same rows: group 0 sees all tokens, and each other group has
// a window, the number of last tokens that a token sees, including itself. Each group has its
// own pages, numbered from 0, and the layers of a group use the same numbers, each in its own
// buffer.
//
// A [Sequence] has the ids of its tokens and one table of pages for each group. A step of the
// network is:
//
//  1. [Sequence.Prefix] takes the rows of a prompt that the cache has already.
//  2. [Sequence.Redo] says which kept tokens must be decoded again, before new ones.
//  3. [Sequence.Reserve] makes room for rows, and returns the copies that must be performed
//     before the step writes them.
//  4. [Sequence.Commit] counts the rows that were written, or [Sequence.Cancel] forgets them.
//
// # Sharing
//
// Pages have reference counts. [Sequence.Fork] shares all pages of a sequence. The prefix tree
// shares full pages between sequences that have the same tokens from the first one on and the
// same [Key]. A node of the tree is one page of every group, keyed by the node before it and
// by the [Rows] ids of the page. Every page that a commit fills enters the tree. If the tree
// has a page with the same ids already, the sequence takes that page and frees its own, so
// that many sequences with the same prompt hold its rows once. A private sequence takes no part
// in this: its rows come from outside, and others must not depend on them.
//
// A row is written only while its page has one reference. Full pages are never written, and a
// last page that is shared is copied when a step reserves rows in it.
//
// # Windows
//
// When no later token of a sequence can see any row of a page, the sequence gives the page
// back, at once or after SequenceOptions.Slack more rows. A later rewind can need such a page.
//
// A sequence is whole at position p if in every group the pages of the rows that a token at p
// sees are there, in the sequence's tables or in the tree. All sequences are whole at 0. A rewind
// to n therefore goes back to the last point p <= n where the sequence is whole, and keeps the ids
// up to n. Decoding the ids from p to n again, as [Sequence.Redo] says, restores the rows. The
// pages behind p are released in all groups, so that a row that is written again is in a page that
// nothing else refers to. When such a page is full, the sequence takes the page of the tree again
// if the tree has it.
//
// # Limits
//
// The tree keeps pages that no sequence holds, for later prompts, up to Options.PrefixRows
// rows in each group. Beyond that, and whenever a sequence needs pages and none is free, the
// least recently used ones are dropped. A page that a sequence holds too costs nothing and is
// not counted, and its node remains in the tree at least as long as the sequence holds it.
//
// # Invariants
//
//   - A page is free if and only if it has no reference. References come from tables, from
//     nodes of the tree, and from reservations that will replace a shared page.
//   - If a sequence holds the page of a node in group 0, then it holds the pages of all nodes
//     before that node. A node whose page only the tree holds therefore has no node after it
//     that a sequence uses.
//   - In the order of use, a node is never older than the nodes after it.
//   - With the tree on, all full pages of group 0 of all sequences are in the tree, except those
//     of private sequences.
//
// Broken invariants and calls in the wrong order panic and say what they found.
//
// The package is not safe for concurrent use. One lock of the owner guards a pool and all of
// its sequences. Beside growing tables, Reserve and Commit do not allocate on the Go heap
// while a sequence generates.
package page
