// Package git gets one commit's files out of a remote repository, over HTTPS or SSH, and
// nothing else: no history, submodules, LFS, hooks or program. All is in memory and bounded.
//
// The protocol (version 0, gitprotocol-pack(5)), packs and objects are go-git's. Its own
// transports are not used: they have no bounds on what a server sends, and say little about
// what went wrong.
package git

import "time"

// Limits bound what one fetch takes of the agent.
type Limits struct {
	Advertised int64         // bytes of the list of branches and tags
	Pack       int64         // bytes that arrive
	Unpacked   int64         // bytes of all objects, and of all files
	Objects    uint32        // number of objects
	File       int64         // bytes of one file; larger ones are left with the server where it can
	Time       time.Duration // for all of it
}

// DefaultLimits fit into an agent of 160 MiB, twice at a time.
var DefaultLimits = Limits{
	Advertised: 8 << 20, Pack: 8 << 20, Unpacked: 24 << 20, Objects: 50_000, File: 1 << 20, Time: 2 * time.Minute,
}
