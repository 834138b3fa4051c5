// Package git fetches only one commit's files from a remote repository, over HTTPS or SSH: no
// history, submodules, LFS, hooks or program. Everything is in memory and bounded.
//
// The protocol (version 0, gitprotocol-pack(5)), packs and objects are go-git's. The package does
// not use go-git's transports, which do not bound a server's data and report few details of errors.
package git

import "time"

// Limits bound what one fetch uses of the agent.
type Limits struct {
	Advertised int64         // bytes of the list of branches and tags
	Pack       int64         // bytes that arrive
	Unpacked   int64         // bytes of all objects, and of all files
	Objects    uint32        // number of objects
	File       int64         // bytes of one file; larger ones stay with the server if it allows that
	Time       time.Duration // for all of it
}

// DefaultLimits fit into the agent's memory, where Fetch reserves them.
var DefaultLimits = Limits{
	Advertised: 8 << 20, Pack: 8 << 20, Unpacked: 24 << 20, Objects: 50_000, File: 1 << 20, Time: 2 * time.Minute,
}
