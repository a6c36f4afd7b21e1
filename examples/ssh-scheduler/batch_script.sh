echo "one job"
echo "another job"
echo "two commands" && echo "in one job: lines are bash"
bash local.sh && echo "files of this folder are there, too"
