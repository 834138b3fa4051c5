// Package limit bounds what one peer can use of a listener and of a handler, so that no peer can
// keep others out. It bounds connections at a time and new ones per second by address (Listener),
// and connections in their handshake (Room). By the name of a peer, it bounds calls at a time
// (Shares) and failures (Failures). It refuses before any expensive work, and also bounds what it
// remembers of peers.
//
// It is a leaf package: all wires and parties may import it. It does not identify peers by their
// certificates; its users give it a name to count by.
package limit
