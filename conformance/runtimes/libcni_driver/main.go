// SPDX-License-Identifier: Apache-2.0

// libcni as a command: VERB CONFLIST CACHE-DIRECTORY, the rest in the environment
// (CNI_PATH, ID, NETNS, IFNAME, CAPABILITIES as JSON, VALID as "id/ifname ...").
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(verb, file, cache string) error {
	list, err := libcni.ConfListFromFile(file)
	if err != nil {
		return err
	}
	rt := &libcni.RuntimeConf{ContainerID: os.Getenv("ID"), NetNS: os.Getenv("NETNS"), IfName: os.Getenv("IFNAME")}
	if s := os.Getenv("CAPABILITIES"); s != "" {
		if err := json.Unmarshal([]byte(s), &rt.CapabilityArgs); err != nil {
			return err
		}
	}
	cni := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), cache, nil)
	ctx := context.Background()
	switch verb {
	case "ADD":
		result, err := cni.AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		return result.Print()
	case "CHECK":
		return cni.CheckNetworkList(ctx, list, rt)
	case "DEL":
		return cni.DelNetworkList(ctx, list, rt)
	case "GC":
		return cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid(os.Getenv("VALID"))})
	case "STATUS":
		return cni.GetStatusNetworkList(ctx, list)
	}
	return fmt.Errorf("unknown verb %q", verb)
}

func valid(text string) []types.GCAttachment {
	out := []types.GCAttachment{}
	for _, pair := range strings.Fields(text) {
		id, ifname, _ := strings.Cut(pair, "/")
		out = append(out, types.GCAttachment{ContainerID: id, IfName: ifname})
	}
	return out
}
