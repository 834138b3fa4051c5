// Package limit bounds what one peer can take of a listener and of a handler, so that
// nobody is kept out by somebody else: connections at a time and new ones per second by
// address (Listener), connections in their handshake (Room), calls at a time (Shares) and
// failures (Failures) by whoever they are counted for. It refuses before anything dear is
// done, and what it remembers of peers is bounded too.
//
// It is a leaf: all wires and parties may import it. Who a peer is when it has shown a
// certificate is not its business; its users give it a name to count by.
package limit
