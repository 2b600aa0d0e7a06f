# SPDX-License-Identifier: Apache-2.0
"""An image of busybox that nobody has to pull: an OCI image layout in an archive, made from the unpacked package."""
import hashlib
import io
import json
import os
import subprocess
import tarfile

NAME = "docker.io/lab/busybox:1"


def archive(root, path):
    """Writes the image with the root file system ROOT to PATH; its first process sleeps."""
    layer = subprocess.run(["tar", "-C", root, "-c", "."], check=True, stdout=subprocess.PIPE).stdout
    config = _json({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
                    "config": {"Entrypoint": ["/bin/busybox"], "Cmd": ["sleep", "86400"], "Env": ["PATH=/bin"]},
                    "history": [{"created_by": "lab"}]})
    manifest = _json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                      "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
                      "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)]})
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    entry["annotations"] = {"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "1"}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": _json({"schemaVersion": 2, "manifests": [entry]})}
    files.update({"blobs/sha256/" + _digest(blob)[7:]: blob for blob in (layer, config, manifest)})
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _json(value):
    return json.dumps(value).encode()


def _digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _descriptor(kind, data):
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}
