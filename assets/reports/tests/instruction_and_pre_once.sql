{{ config(meta={'description': 'No two edits have the same instruction and text before.'}) }}
select instruction_md5, pre_md5
from {{ ref('stg_edits') }}
group by instruction_md5, pre_md5
having count(*) > 1
