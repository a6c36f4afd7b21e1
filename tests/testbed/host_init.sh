#!/bin/bash
# Process 1 of a host, in namespaces of its own: builds its file system, then becomes its sshd.
# Arguments: the host's name, the folder of its disk.
set -e
name=$1 disk=$2 root=$2/root
hostname "$name"
mount --make-rprivate /
for try in 1 2 3 4 5 6 7 8 9 10; do # after a power cut the kernel may hold the disk for a few ms more
  mount -t overlay "$name" -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$root" && break
  [ "$try" = 10 ] && exit 1
  sleep 0.1
done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,size=1g tmpfs "$root/tmp"
mount -t tmpfs -o mode=755,size=64m tmpfs "$root/run"
mount -t tmpfs -o mode=1777,size=256m tmpfs "$root/dev/shm"
# As it is on ordinary machines, whoever this one lets open it.
mknod -m 666 "$root/run/tun" c 10 200
[ ! -e "$root/dev/net/tun" ] || mount --bind "$root/run/tun" "$root/dev/net/tun"
[ ! -d "${disk%/*}/home" ] || mount --bind "${disk%/*}/home" "$root/home" # hosts that share it
mkdir -p "$root/run/sshd" "$root/run/lock" "$root/oldroot"
cd "$root"
# pivot_root, not chroot alone: only so may programs on the host make namespaces themselves.
pivot_root . oldroot
exec chroot . /bin/bash -c 'umount -l /oldroot && rmdir /oldroot && cd / &&
  exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /usr/sbin/sshd -D -e -f /etc/ssh/testbed_sshd_config'
