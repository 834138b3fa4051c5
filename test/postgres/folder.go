package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/test/debian"
)

// prefix is in the names of the servers' folders.
const prefix = "pipeops-postgres-"

// system returns the user for a server of root, since PostgreSQL refuses to run as root. It is the
// user of Debian's package, with that user's folder: root's own folders are closed to it.
func system() (uid, gid int, home string, needed bool, err error) {
	if os.Geteuid() != 0 {
		return 0, 0, "", false, nil
	}
	u, err := user.Lookup(superuser)
	if err != nil {
		return 0, 0, "", true, fmt.Errorf("PostgreSQL does not run as root: %w; add a system user %s", err, superuser)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return uid, gid, u.HomeDir, true, errors.Join(err1, err2)
}

// asServer returns the attributes of the server's processes.
func asServer() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if uid, gid, _, needed, err := system(); needed && err == nil {
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return attr
}

// give changes a folder's owner to the server's user.
func give(dir string) error {
	uid, gid, _, needed, err := system()
	if !needed || err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

// newFolder creates a folder for a server (debian.Folder).
func newFolder() (dir string, unlock func(), err error) {
	_, _, base, needed, err := system()
	if err != nil {
		return "", nil, err
	}
	if !needed {
		base = os.TempDir()
	}
	return debian.Folder(base, prefix)
}
