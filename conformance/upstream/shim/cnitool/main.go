// SPDX-License-Identifier: Apache-2.0

// A small stand-in for upstream's cnitool, which Debian does not package; the
// integration suite runs it. Same arguments and environment: COMMAND NETWORK
// NETNS, with NETCONFPATH, CNI_PATH, CAP_ARGS, CNI_ARGS and CNI_IFNAME.
package main

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(argv []string) error {
	if len(argv) != 3 {
		return fmt.Errorf("usage: cnitool add|check|del|gc|status NETWORK NETNS")
	}
	confDir := os.Getenv("NETCONFPATH")
	if confDir == "" {
		confDir = "/etc/cni/net.d"
	}
	conf, err := libcni.LoadConfList(confDir, argv[1])
	if err != nil {
		return err
	}
	netns, err := filepath.Abs(argv[2])
	if err != nil {
		return err
	}
	rt := &libcni.RuntimeConf{
		ContainerID: fmt.Sprintf("cnitool-%x", sha512.Sum512([]byte(netns)))[:28],
		NetNS:       netns,
		IfName:      os.Getenv("CNI_IFNAME"),
	}
	if rt.IfName == "" {
		rt.IfName = "eth0"
	}
	if s := os.Getenv("CAP_ARGS"); s != "" {
		if err := json.Unmarshal([]byte(s), &rt.CapabilityArgs); err != nil {
			return err
		}
	}
	for _, kv := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			rt.Args = append(rt.Args, [2]string{k, v})
		}
	}
	cni := libcni.NewCNIConfig(filepath.SplitList(os.Getenv("CNI_PATH")), nil)
	ctx := context.Background()
	switch argv[0] {
	case "add":
		result, err := cni.AddNetworkList(ctx, conf, rt)
		if result != nil {
			_ = result.Print()
		}
		return err
	case "check":
		return cni.CheckNetworkList(ctx, conf, rt)
	case "del":
		return cni.DelNetworkList(ctx, conf, rt)
	case "gc":
		return cni.GCNetworkList(ctx, conf, nil)
	case "status":
		return cni.GetStatusNetworkList(ctx, conf)
	}
	return fmt.Errorf("unknown command %q", argv[0])
}
