package cli

import (
	"context"
	"os/exec"
	"runtime"
)

// OpenBrowser opens a link in the person's browser. It returns false if there is none.
func OpenBrowser(ctx context.Context, link string) bool {
	program, args := "xdg-open", []string{link}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler", link}
	}
	return exec.CommandContext(context.WithoutCancel(ctx), program, args...).Start() == nil
}
