package announce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/go-retryablehttp"
)

// VersionPath is where the control plane serves its version, to anyone.
const VersionPath = "/v1/version"

// maxVersion bounds the answer of VersionPath.
const maxVersion = 64 << 10

// ServerVersion is the answer of VersionPath.
type ServerVersion struct {
	Version string `json:"version" doc:"The control plane's version." example:"1.2.3"`
}

// Version returns the control plane's version.
func (c *SnapshotClient) Version(ctx context.Context) (string, error) {
	url := strings.TrimSuffix(c.BaseURL, "/") + VersionPath
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("%w; check the control plane's URL", err)
	}
	body, err := c.do(req, maxVersion)
	if err != nil {
		return "", err
	}
	var v ServerVersion
	if err := ofPages.JSON(body, &v); err != nil {
		return "", fmt.Errorf("the answer is not the JSON expected: %w; check the control plane's URL", err)
	}
	if v.Version == "" {
		return "", errors.New("the answer has no version; check the control plane's URL")
	}
	return v.Version, nil
}
