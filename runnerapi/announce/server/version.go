package server

import (
	"encoding/json"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// VersionHandler serves the control plane's version without authentication, as the document does.
func VersionHandler(version string) http.Handler {
	return jsonHandler(func(http.ResponseWriter, *http.Request) ([]byte, error) {
		return json.Marshal(announce.ServerVersion{Version: version})
	})
}
