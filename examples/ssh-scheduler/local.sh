# Runs on the machine; what it makes comes home to job_results/.
hostname | tee where_it_ran.txt
