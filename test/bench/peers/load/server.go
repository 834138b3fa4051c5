package load

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// The server's paths.
const (
	// PathSmall returns 1 KiB.
	PathSmall = "/small"
	// PathBulk returns ?size=BYTES, and counts what is posted.
	PathBulk = "/bulk"
)

// Handler returns the server's side of the load.
func Handler() http.Handler {
	mux := http.NewServeMux()
	small := make([]byte, 1<<10)
	mux.HandleFunc("GET "+PathSmall, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(small) })
	mux.HandleFunc("GET "+PathBulk, sendBulk)
	mux.HandleFunc("POST "+PathBulk, takeBulk)
	return mux
}

func sendBulk(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
	if err != nil || size < 0 {
		http.Error(w, "size: say how many bytes", http.StatusBadRequest)
		return
	}
	block := make([]byte, 256<<10)
	for size > 0 {
		n, err := w.Write(block[:min(size, int64(len(block)))])
		if err != nil {
			return // the client has gone
		}
		size -= int64(n)
	}
}

func takeBulk(w http.ResponseWriter, r *http.Request) {
	n, err := io.CopyBuffer(onlyWriter{io.Discard}, r.Body, make([]byte, 256<<10))
	if err != nil {
		return
	}
	fmt.Fprintln(w, n)
}
