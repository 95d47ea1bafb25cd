//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// namespaces are two places with a network of their own, as two machines on one wire.
type namespaces struct {
	left, right string
	agent       string // what mpirun reaches the right with
}

const (
	subnet       = "10.231.7.0/30"
	leftAddress  = "10.231.7.1"
	rightAddress = "10.231.7.2"
)

func newNamespaces(folder string) (*namespaces, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("network namespaces: %w without root; run it as root", errors.ErrUnsupported)
	}
	for _, program := range []string{"ip", "unshare", "hostname"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("network namespaces: %w: %w; install iproute2, util-linux and hostname", errors.ErrUnsupported, err)
		}
	}
	n := &namespaces{left: fmt.Sprintf("lethe-%d-left", os.Getpid()), right: fmt.Sprintf("lethe-%d-right", os.Getpid()), agent: filepath.Join(folder, "agent")}
	script := "#!/bin/sh\n# mpirun calls this in place of ssh, with a host and a command.\nshift\nexec " + strings.Join(enter(n.right), " ") + " sh -c \"hostname right; $*\"\n"
	if err := os.WriteFile(n.agent, []byte(script), 0o777); err != nil {
		return nil, err
	}
	for _, command := range []string{
		"netns add " + n.left, "netns add " + n.right,
		"link add wire netns " + n.left + " type veth peer name wire netns " + n.right,
		"-n " + n.left + " address add " + leftAddress + "/30 dev wire", "-n " + n.right + " address add " + rightAddress + "/30 dev wire",
		"-n " + n.left + " link set lo up", "-n " + n.right + " link set lo up",
		"-n " + n.left + " link set wire up", "-n " + n.right + " link set wire up",
	} {
		if err := ip(command); err != nil {
			n.close()
			return nil, fmt.Errorf("network namespaces: %w: %w", errors.ErrUnsupported, err)
		}
	}
	return n, nil
}

// enter is the command that runs another one in a namespace, with process ids of its own.
func enter(namespace string) []string {
	return []string{"ip", "netns", "exec", namespace, "unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"}
}

// launcher is an mpirun on the left that starts a rank on each side.
func (n *namespaces) launcher(mpirun []string) []string {
	command := append(enter(n.left), "sh", "-c", `hostname left; exec "$0" "$@"`)
	command = append(command, mpirun...)
	return append(command, "--host", leftAddress+","+rightAddress, "--map-by", "node", "--mca", "plm_rsh_agent", n.agent,
		"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet, "--mca", "oob_tcp_if_include", subnet)
}

// link sets the wire up or down.
func (n *namespaces) link(state string) error { return ip("-n " + n.left + " link set wire " + state) }

func (n *namespaces) close() error {
	return errors.Join(ip("netns delete "+n.left), ip("netns delete "+n.right))
}

func ip(command string) error {
	if text, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, strings.TrimSpace(string(text)))
	}
	return nil
}
