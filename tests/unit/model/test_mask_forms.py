"""Secrets as they stand in people's commands: each form is hidden, twice the same.

The tokens are made up; how real ones begin is public.
"""

import shlex
import time

import pytest

from weigh.model.mask import SecretMask

WORD, TOKEN = "Hunter2xyz", "0123456789abcdefABCDEF0123456789abcd"
LINES = """\
curl -u me:WORD http://h/x
curl -ume:WORD h
curl -s -u 'me:WORD' https://h
curl --user=me:WORD h
git clone https://TOKEN@github.com/a/b
git clone https://oauth2:TOKEN@gitlab.com/a
wget 'https://h/f?sv=1&sig=TOKEN%3D&x=2'
curl 'https://h/f?X-Amz-Signature=TOKEN&a=1'
mysql -u root -pWORD db
mysqldump --all -p'WORD' db
sshpass -p WORD ssh h
sshpass -pWORD scp a h:
wandb login TOKEN
wandb login --relogin TOKEN
wandb login --host https://w.example TOKEN
python t.py '{"password": "WORD"}'
python t.py "{\\"api_key\\": \\"WORD\\"}"
x ghp_TOKEN
x hf_TOKEN
x sk-TOKEN
x sk-proj-TOKEN
x --backend sk-ant-api03-TOKEN
x xoxb-123456789012-TOKEN
x AIzaTOKEN
x glpat-TOKEN
x npm_TOKEN
x pypi-TOKEN
x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.TOKEN
docker login -u me -p WORD registry
redis-cli -a WORD get x
http -a me:WORD h
lftp -u me,WORD h
smbclient //h/s -U me%WORD
openssl x -passin pass:WORD
ldapsearch -x -w WORD -b dc
htpasswd -b f me WORD
curl -H 'Cookie: session=TOKEN' h
aws configure set aws_secret_access_key TOKEN
x --pass WORD
x --pw=WORD
DB_PW=WORD x
x 'AccountKey=TOKEN=='
x 'password: WORD'
huggingface-cli login --token TOKEN
hf auth login TOKEN
conda token set TOKEN
python t.py --wandb-key WORD
python t.py wandb.key=WORD
rclone copy --sftp-pass WORD a b
x --pat WORD
kaggle --key TOKEN
x --auth TOKEN
az login -u me -p WORD
zip -P WORD a.zip b
unzip -P WORD a.zip
7z x -pWORD a.7z
openssl enc -aes-256-cbc -k WORD -in a
python -c "import wandb; wandb.login(key='WORD')"
x --client-secret WORD
export AWS_SESSION_TOKEN=TOKEN
psql 'host=h password=WORD'
x --header 'PRIVATE-TOKEN: TOKEN'
mongo mongodb+srv://me:WORD@h/d
"""
HARMLESS = """\
docker run -p 80:8080 image
mysql -p db
ffmpeg -pass 1 x
git clone https://github.com/a/b
wget https://myname@host/x
ssh git@github.com
curl -u me: h
curl -A agent:1 -o a.html https://h/x:y
http GET h
python sk-learn.py --task-id 3 disk-2
x hf_transformers --model=hf_bert_base
module load asia
x --sort-key=name
curl -u me:$PW h
"""


@pytest.mark.parametrize("form", LINES.splitlines())
def test_a_secret_is_hidden_in_a_line_and_in_the_words_of_a_command(form: str) -> None:
    line = form.replace("WORD", WORD).replace("TOKEN@", f"{TOKEN}@")
    line = line.replace("AWS_SESSION_TOKEN", "AWS_SESSION_T").replace("TOKEN", TOKEN)
    line = line.replace("AWS_SESSION_T", "AWS_SESSION_TOKEN")
    line = line.replace(f"PRIVATE-{TOKEN}", "PRIVATE-TOKEN")

    masked, words = SecretMask().line(line), SecretMask().words(shlex.split(line))

    for text in (masked, *words):
        assert WORD not in text
        assert TOKEN not in text
    assert SecretMask().line(masked) == masked
    assert len(words) == len(shlex.split(line))


def test_a_password_that_echo_pipes_is_hidden() -> None:
    line = f"echo {WORD} | docker login --password-stdin"
    assert WORD not in SecretMask().line(line)


@pytest.mark.parametrize("line", HARMLESS.splitlines())
def test_what_only_looks_like_a_secret_stays(line: str) -> None:
    assert SecretMask().line(line) == line
    assert SecretMask().words(shlex.split(line)) == tuple(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "echo " + "a" * 20_000,
        "curl " * 4_000,
        "x --password " + "a'b'" * 5_000 + "'",
        'x {"password": ' * 1_500,
        "wandb login " + "--a " * 5_000,
        "http://" * 3_000,
    ],
    ids=["echo", "curl", "quotes", "json", "options", "urls"],
)
def test_a_long_line_is_read_in_time(line: str) -> None:
    began = time.process_time()
    SecretMask().line(line)
    assert time.process_time() - began < 10  # exponential ones never end
